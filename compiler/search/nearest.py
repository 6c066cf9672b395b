"""Why nothing fits: the nearest miss of the trainer, of the engines, or of the two together, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger.engine import engine_ledger
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.search.branch_and_bound import Search, node_budget, shared_splits, trainer_counts
from prlc.compiler.search.engine_layouts import role_shapes
from prlc.compiler.search.trainer_layouts import layout, meshes, options
from prlc.compiler.search.trainer_side import INFINITE

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.plan import Ledger

GIB = 2**30


class NoLayout(ValueError):
    """Nothing fits; `why` names the nearest miss and `cure` what would help."""

    def __init__(self, why: str, cure: str) -> None:
        super().__init__(why)
        self.why, self.cure = why, cure


def nearest_miss(resolved: Resolved, search: Search) -> NoLayout:
    """The reason why the search of a spec found nothing."""
    splits = shared_splits(resolved)
    counts = trainer_counts(resolved)
    if not counts and not splits:
        return NoLayout(
            "trainer and engines run on separate GPUs, and the cluster has one GPU",
            "a cluster with at least 2 GPUs",
        )
    gpus = resolved.cluster.node.gpus
    shapes = {(count, gpus) for count in counts} | {(1, split.ranks) for split in splits}
    fitting = next((s for s in sorted(shapes) if next(search.trainer.fitting(*s, INFINITE), None)), None)
    if fitting is None:
        return _trainer(resolved, sorted(shapes))
    engines = _engines(resolved, gpus if counts else max(split.gpus for split in splits))
    if engines is not None:
        return engines
    return _together(resolved, search, fitting)


def _trainer(resolved: Resolved, shapes: list[tuple[int, int]]) -> NoLayout:
    spec = resolved.spec
    nearest: tuple[int, str] | None = None
    option = options(spec, resolved.gpu.device)[-1]  # the most frugal
    for nodes, ranks in shapes:
        for mesh in meshes(spec, resolved.facts, nodes, ranks):
            if mesh[0] > 1 and nearest is not None:
                continue  # more copies of the state need no less
            tried = layout(spec, tuple(range(nodes)), ranks, mesh, option)
            ledger = trainer_ledger(resolved.facts, resolved.gpu, tried, spec.trainer.precision, spec.sequence.seq_len)
            over = ledger.total - ledger.capacity
            if nearest is None or over <= nearest[0]:
                where = f"{nodes} nodes" if nodes > 1 else f"{ranks} GPUs"
                degrees = f"cp {tried.cp}, ep {tried.ep}, offload {option[0]}, {option[1]} recompute"
                nearest = over, f"{where}, {degrees} needs {_sum(ledger)}"
    if nearest is None:
        return NoLayout(
            "no mesh satisfies the pinned degrees: dp_replicate x dp_shard x cp must be the trainer's GPUs"
            f" (tried {', '.join(str(n * r) for n, r in shapes[-4:])}), at most batch_size"
            f" {spec.algorithm.batch_size} data-parallel ranks, (dp_shard x cp) % ep == 0",
            "let trainer.parallel be auto, or hold fewer degrees",
        )
    return NoLayout(f"no trainer mesh fits: {nearest[1]}", "more nodes, or a shorter sequence.seq_len")


def _sum(ledger: Ledger) -> str:
    largest = max(ledger.entries, key=lambda entry: entry.bytes)
    return (
        f"{ledger.total / GIB:.0f} GiB of {ledger.capacity / GIB:.0f} GiB a GPU; "
        f"the largest part is {largest.what}, {largest.bytes / GIB:.0f} GiB"
    )


def _engines(resolved: Resolved, gpus: int) -> NoLayout | None:
    """None when some engine holds a longest sample."""
    spec, need = resolved.spec, resolved.spec.sequence.seq_len
    most = min(max(1, node_budget(resolved) - 1), 16)
    replay = spec.algorithm.router_replay is not False and bool(resolved.facts.num_experts)
    best: tuple[int, int, str, Ledger] | None = None
    for shape in role_shapes("engine", spec, resolved.facts, resolved.gpu, gpus, most):
        engine = shape.layout
        ledger = engine_ledger(resolved.facts, resolved.gpu, engine, spec.inference.precision, replay)
        found = engine.kv_tokens, -ledger.total
        if best is None or found > best[:2]:
            best = *found, f"tp {engine.tp}, dp {engine.dp}, ep {engine.ep}", ledger
    if best is None:
        return NoLayout(
            "no engine layout satisfies the pinned degrees of inference",
            "let inference.tensor_parallel and data_parallel be auto",
        )
    if best[0] >= need:
        return None
    keeps = f"keeps {best[0]:,} of {need:,} tokens"
    if best[0] == 0:
        keeps += f" and needs {_sum(best[3])}"
    return NoLayout(
        f"no engine layout leaves room for the KV cache of one sequence: the roomiest, {best[2]}, {keeps}",
        "more inference nodes, inference.precision: fp8, or a shorter sequence.seq_len",
    )


def _together(resolved: Resolved, search: Search, smallest: tuple[int, int]) -> NoLayout:
    nodes, ranks = smallest
    budget = node_budget(resolved)
    where = f"{nodes} nodes" if nodes > 1 or ranks == resolved.cluster.node.gpus else f"{ranks} GPUs"
    if search.rejected is not None:
        ledger = search.rejected
        return NoLayout(
            f"every layout that fits the GPUs overflows the {ledger.role}'s host memory: "
            f"{ledger.total / GIB:.0f} of {ledger.capacity / GIB:.0f} GiB",
            "more nodes, trainer.optimizer.offload: none, or inference.kv_offload: none",
        )
    return NoLayout(
        f"the trainer fits on {where} or more and engines fit too, but not both on {budget} "
        f"node{'s' if budget > 1 else ''}, with what the spec holds",
        "more nodes, or fewer held values",
    )
