"""What would let a spec fit for which no layout does: each way out was searched and has a layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prlc.compiler.search.assemble import with_inflight
from prlc.compiler.search.branch_and_bound import Search, node_budget
from prlc.compiler.search.wishes import settle

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.compiler.search.objective import Choice

Path = tuple[str, ...]
LARGEST = (2, 16)  # of larger clusters that are looked at: so many times the present one, or so many nodes. A search
# without a find prices every split: 0.1 CPU s on 4 nodes, 1 s on 16, 3 s on 32
SHORTER = (2, 4, 8)  # parts of seq_len that are tried
HELD: tuple[Path, ...] = (
    ("trainer", "parallel", "cp"),
    ("trainer", "parallel", "ep"),
    ("trainer", "parallel", "dp_shard"),
    ("trainer", "parallel", "dp_replicate"),
    ("trainer", "nodes"),
    ("trainer", "optimizer", "offload"),
    ("trainer", "activation_checkpoint"),
    ("inference", "tensor_parallel"),
    ("inference", "data_parallel"),
    ("inference", "expert_parallel"),
    ("inference", "disaggregate"),
    ("inference", "prefill_nodes"),
    ("inference", "decode_nodes"),
    ("inference", "kv_offload"),
    ("inference", "router"),
    ("algorithm", "max_inflight_groups"),
)


@dataclass(frozen=True)
class WayOut:
    """One change that has a layout: the key that it changes and the words for the help line."""

    path: Path
    text: str


def ways_out(resolved: Resolved) -> tuple[WayOut, ...]:
    """Changes with which the search finds a layout: nodes, a held value, a precision or a shorter sample alone; where
    none of these is enough, all held values together, with more nodes if need be.

    Empty where nothing of this fits. Costs one search a change.
    """
    here = (*_nodes(resolved, resolved.cluster.nodes), *_held(resolved))
    return here or (*_nodes(resolved, most_nodes(resolved)), *_smaller(resolved)) or tuple(_together(resolved))


def most_nodes(resolved: Resolved) -> int:
    """Nodes of the largest cluster that is looked at."""
    times, least = LARGEST
    return max(least, times * resolved.cluster.nodes)


def fits(resolved: Resolved) -> Choice | None:
    """The best lawful layout, None where there is none."""
    settled, _ = settle(resolved)
    return Search(with_inflight(settled)).best()


def with_value(resolved: Resolved, path: Path, value: object) -> Resolved:
    """The spec with another value there."""

    def changed(holder: Any, keys: Path) -> Any:
        new = value if len(keys) == 1 else changed(getattr(holder, keys[0]), keys[1:])
        return dataclasses.replace(holder, **{keys[0]: new})

    return dataclasses.replace(resolved, spec=changed(resolved.spec, path))


def _with_nodes(resolved: Resolved, count: int) -> Resolved:
    larger = dataclasses.replace(resolved.cluster, nodes=max(count, resolved.cluster.nodes))
    return dataclasses.replace(with_value(resolved, ("nodes",), count), cluster=larger)


def _nodes(resolved: Resolved, most: int) -> Iterator[WayOut]:
    """The fewest nodes up to `most` that are enough, of this cluster or of a larger one."""
    budget = node_budget(resolved)
    least = _least(lambda count: fits(_with_nodes(resolved, count)) is not None, budget, most)
    if least is None:
        return
    if least > resolved.cluster.nodes:
        yield WayOut(("cluster",), f"a cluster of at least {least} such nodes")
        return
    text = f"nodes: at least {least}"
    step = resolved.spec.objective.step_time
    best = fits(with_value(resolved, ("nodes",), "auto")) if step is not None else None
    if best is not None and step is not None and best.layout.nodes > least:
        reached = best.step <= step
        text += f"; {best.layout.nodes} {'reach the step time' if reached else 'make the shortest step'} (nodes: auto)"
    yield WayOut(("nodes",), text)


def _least(enough: Callable[[int], bool], budget: int, most: int) -> int | None:
    """The smallest count in budget + 1 .. most that is enough, None without one; more nodes are never too many."""
    low, high = budget, min(2 * budget, most)
    while high > low and not enough(high):
        low, high = high, min(2 * high, most)
    if high <= low:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _held(resolved: Resolved) -> Iterator[WayOut]:
    """Each held value that stands alone in the way."""
    for path in held_paths(resolved):
        if fits(with_value(resolved, path, "auto")):
            yield WayOut(path, f"{'.'.join(path)}: auto")


def held_paths(resolved: Resolved) -> tuple[Path, ...]:
    """Keys of the layout that the spec holds."""
    return tuple(path for path in HELD if resolved.said(*path) and _at(resolved, path) != "auto")


def _together(resolved: Resolved) -> Iterator[WayOut]:
    """Every held value let go, alone or with more nodes."""
    held, free = held_paths(resolved), resolved
    for path in held:
        free = with_value(free, path, "auto")
    words = f"auto for {', '.join('.'.join(path) for path in held)}"
    if len(held) > 1 and fits(free):
        yield WayOut(held[0], words)
    elif held:
        yield from (WayOut(held[0], f"{words}, and {more.text}") for more in _nodes(free, most_nodes(free)))


def _at(resolved: Resolved, path: Path) -> object:
    value: object = resolved.spec
    for key in path:
        value = getattr(value, key)
    return value


def _smaller(resolved: Resolved) -> Iterator[WayOut]:
    """A precision of fewer bytes, or shorter samples."""
    trials: list[tuple[Path, object]] = [
        (("trainer", "precision"), "bf16"),
        (("inference", "precision"), "bf16"),
        (("inference", "precision"), "fp8"),
    ]
    bits = {"fp32": 32, "bf16": 16, "fp8": 8}
    for path, value in trials:
        if bits[str(value)] < bits[str(_at(resolved, path))] and fits(with_value(resolved, path, value)):
            yield WayOut(path, f"{'.'.join(path)}: {value}")
            return
    for part in SHORTER:
        length = resolved.spec.sequence.seq_len // part
        if fits(with_value(resolved, ("sequence", "seq_len"), length)):
            yield WayOut(("sequence", "seq_len"), f"sequence.seq_len: {length}")
            return
