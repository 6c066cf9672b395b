"""Questions about a spec with other values: what each change was, and the layout that it leads to, without a plan."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prlc.compiler.forecast.loop import work
from prlc.compiler.pins import full_path, with_pins
from prlc.compiler.resolve import resolve
from prlc.compiler.rules import SPEC_RULES
from prlc.compiler.search.solve import NoLayout, solve
from prlc.compiler.search.wishes import settle
from prlc.schema import positions

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.compiler.search.objective import Choice

MOST_POINTS = 200  # of a sweep


class SweepError(ValueError):
    """A sweep that cannot be read."""


@dataclass(frozen=True)
class Answer:
    """What became of a spec with these values: its choice, or why there is none."""

    values: Mapping[str, str]
    resolved: Resolved | None
    choice: Choice | None
    why: str = ""

    @property
    def tokens_per_gpu_hour(self) -> float:
        """Trained tokens of a GPU-hour; 0 without a choice."""
        if self.choice is None or self.resolved is None:
            return 0.0
        spec = self.resolved.spec
        tokens = spec.algorithm.batch_size * work(spec).length
        return tokens / self.choice.step * 3600 / self.choice.gpus


def grown(resolved: Resolved, pins: Mapping[str, str]) -> Resolved:
    """With `nodes` pinned above the cluster's, the cluster as if it had so many: the question is what they would do."""
    asked = resolved.spec.nodes
    if "nodes" not in pins or asked == "auto" or asked <= resolved.cluster.nodes:
        return resolved
    return dataclasses.replace(resolved, cluster=dataclasses.replace(resolved.cluster, nodes=int(asked)))


def answer(text: str, filename: str, pins: Mapping[str, str]) -> Answer:
    """The layout of the spec with these values. Raises PinError for a path that is no place in a spec."""
    resolved, found = resolve(with_pins(text, pins), filename)
    if resolved is None:
        return Answer(pins, None, None, found[0].message)
    resolved = grown(resolved, pins)
    errors = [d for rule in SPEC_RULES for d in rule(resolved) if d.severity == "error"]
    if errors:
        return Answer(pins, resolved, None, errors[0].message)
    try:
        return Answer(pins, resolved, solve(settle(resolved)[0]).best)
    except NoLayout as error:
        return Answer(pins, resolved, None, error.why)


def changes(text: str, pins: Mapping[str, str]) -> list[str]:
    """'nodes 16 (the spec: auto)', one a pin, in their order."""
    data: Any = positions.load(text, "spec").data
    lines = []
    for given, value in pins.items():
        path = full_path(given)
        said: Any = data
        for key in path.split("."):
            said = said.get(key) if isinstance(said, dict) else None
        lines.append(f"{path} {value} (the spec: {'nothing' if said is None else said})")
    return lines


def swept(text: str) -> tuple[str, tuple[str, ...]]:
    """'nodes=8:32:8' -> ('nodes', ('8', '16', '24', '32')); 'sequence.seq_len=4096,8192' -> its values.

    Raises SweepError.
    """
    path, equals, values = text.partition("=")
    if not (path and equals and values):
        raise SweepError(f"--sweep {text}: write it as path=first:last:step or path=a,b,c")
    path = full_path(path.strip().replace("-", "_"))
    if ":" in values and "," not in values:
        parts = values.split(":")
        if len(parts) not in (2, 3) or not all(p.strip().lstrip("-").isdigit() for p in parts):
            raise SweepError(f"--sweep {text}: a range is first:last or first:last:step, whole numbers")
        first, last = int(parts[0]), int(parts[1])
        step = int(parts[2]) if len(parts) == 3 else 1
        if step < 1 or last < first:
            raise SweepError(f"--sweep {text}: from low to high, in steps of at least 1")
        return path, tuple(str(n) for n in range(first, last + 1, step))
    return path, tuple(value.strip() for value in values.split(",") if value.strip())


def sweep(text: str, filename: str, pins: Mapping[str, str], sweeps: tuple[str, ...]) -> Iterator[Answer]:
    """One answer for each combination of the swept values; `values` of it holds these alone. Raises SweepError."""
    axes = [swept(one) for one in sweeps]
    points = list(itertools.product(*(values for _, values in axes)))
    if len(points) > MOST_POINTS:
        raise SweepError(f"{len(points)} combinations are too many; at most {MOST_POINTS}")
    for point in points:
        values = {path: value for (path, _), value in zip(axes, point, strict=True)}
        found = answer(text, filename, {**pins, **values})
        yield dataclasses.replace(found, values=values)


def frontier(answers: list[Answer]) -> list[bool]:
    """For each answer: no other one has a step as short on as few GPUs, and one of the two better."""
    found = [(a.choice.step, a.choice.gpus) if a.choice else None for a in answers]
    points = [p for p in found if p is not None]
    return [p is not None and not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points) for p in found]
