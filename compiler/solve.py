"""Choose the layout: every legal split of the nodes, mesh and engine layout that fits, by the spec's objective.

Trainer and engines meet only in the split of the nodes and in max(trainer, rollouts), so the best mesh of each
split and the best engines of each split are found apart and then joined. The weight sync is priced only after
that: it does not choose among engines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.engine_layouts import cpu_engine, role_layouts
from prlc.compiler.forecast import exposed_sync, rollout_seconds, trainer_seconds
from prlc.compiler.forecast_loop import inflight_rollouts
from prlc.compiler.layout import EngineLayout, Layout, StoreLayout, TrainerLayout
from prlc.compiler.ledger_trainer import trainer_ledger
from prlc.compiler.ports import port_ledger
from prlc.compiler.trainer_layouts import trainer_layouts

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved

STORE_SHARE = 0.5  # of host memory; the rest is for weights on load, page cache and the operating system


@dataclass(frozen=True)
class Choice:
    """One whole layout with its forecast in seconds."""

    layout: Layout
    step: float
    trainer: float
    rollouts: float

    @property
    def gpus(self) -> int:
        """GPUs of the layout."""
        return self.layout.trainer.world + sum(e.gpus for e in self.layout.engines)


@dataclass(frozen=True)
class Solution:
    """The choice and what it beat, best first."""

    best: Choice
    others: tuple[Choice, ...]


class NoLayout(ValueError):
    """Nothing fits; `why` names the nearest miss and `cure` what would help."""

    def __init__(self, why: str, cure: str) -> None:
        super().__init__(why)
        self.why, self.cure = why, cure


def solve(resolved: Resolved) -> Solution:
    """The best layout of a spec. Raises NoLayout."""
    if resolved.gpu.device == "cpu":
        return _solve_cpu(resolved)
    meshes = list(_fitting_meshes(resolved))
    best_mesh = _best_by_nodes(meshes)
    if not best_mesh:
        raise _nearest_mesh(resolved)
    found: list[Choice] = []
    engines_of: dict[tuple[int, ...], tuple[float, tuple[EngineLayout, ...]] | None] = {}
    for mesh, seconds in best_mesh:
        nodes = _engine_nodes(resolved, mesh)
        key = (len(nodes), _gpus_left(resolved, mesh))
        if key not in engines_of:
            engines_of[key] = _best_engines(resolved, nodes, _gpus_left(resolved, mesh))
        if engines_of[key] is None:
            continue
        rollouts, engines = engines_of[key]  # type: ignore[misc]
        found.append(_choice(resolved, mesh, _moved(engines, nodes), seconds, rollouts))
    if not found:
        raise NoLayout(
            "no engine layout leaves room for the KV cache of one sequence",
            "more inference nodes, inference.precision: fp8, or a shorter sequence.seq_len",
        )
    found.sort(key=lambda c: _rank(resolved, c))
    return Solution(best=found[0], others=tuple(found[1:]))


def _rank(resolved: Resolved, choice: Choice) -> tuple[float, ...]:
    objective = resolved.spec.objective
    tie = (choice.step, choice.gpus, choice.layout.trainer.ep, choice.layout.trainer.cp)
    if objective.step_time is not None:
        late = choice.step > objective.step_time
        return (float(late), choice.step if late else choice.gpus, *tie)
    if objective.minimize == "gpus":
        return (choice.gpus, *tie)
    if objective.minimize == "gpu_hours_per_token":
        return (choice.gpus * choice.step, *tie)
    return tie


def _node_budget(resolved: Resolved) -> int:
    asked = resolved.spec.nodes
    return resolved.cluster.nodes if asked == "auto" else min(int(asked), resolved.cluster.nodes)


def _trainer_shapes(resolved: Resolved) -> Iterator[tuple[int, int]]:
    """(trainer nodes, ranks a node)."""
    budget, gpus, asked = _node_budget(resolved), resolved.cluster.node.gpus, resolved.spec.trainer.nodes
    if budget == 1:
        yield from ((1, ranks) for ranks in range(1, gpus) if gpus % ranks == 0)
        return
    counts = range(1, budget) if asked == "auto" else (int(asked),)
    yield from ((count, gpus) for count in counts if count < budget)


def _fitting_meshes(resolved: Resolved) -> Iterator[tuple[TrainerLayout, float]]:
    spec, budget = resolved.spec, _node_budget(resolved)
    for count, ranks in _trainer_shapes(resolved):
        nodes = tuple(range(budget - count, budget)) if budget > 1 else (0,)
        for mesh in trainer_layouts(spec, resolved.facts, nodes, ranks, resolved.gpu.device):
            ledger = trainer_ledger(resolved.facts, resolved.gpu, mesh, spec.trainer.precision, spec.sequence.seq_len)
            if ledger.total <= ledger.capacity:
                yield mesh, trainer_seconds(spec, resolved.facts, resolved.gpu, resolved.cluster, mesh)


def _best_by_nodes(meshes: list[tuple[TrainerLayout, float]]) -> list[tuple[TrainerLayout, float]]:
    best: dict[tuple[int, int], tuple[TrainerLayout, float]] = {}
    for mesh, seconds in meshes:
        key = (len(mesh.nodes), mesh.ranks_per_node)
        order = (seconds, mesh.offload != "none", mesh.ep, mesh.cp)
        held = best.get(key)
        if held is None or order < (held[1], held[0].offload != "none", held[0].ep, held[0].cp):
            best[key] = (mesh, seconds)
    return [best[key] for key in sorted(best)]


def _nearest_mesh(resolved: Resolved) -> NoLayout:
    spec, budget = resolved.spec, _node_budget(resolved)
    nearest: tuple[float, str] | None = None
    for count, ranks in _trainer_shapes(resolved):
        nodes = tuple(range(count))
        for mesh in trainer_layouts(spec, resolved.facts, nodes, ranks, resolved.gpu.device):
            ledger = trainer_ledger(resolved.facts, resolved.gpu, mesh, spec.trainer.precision, spec.sequence.seq_len)
            over = ledger.total - ledger.capacity
            largest = max(ledger.entries, key=lambda entry: entry.bytes)
            text = (
                f"{count} nodes, cp {mesh.cp}, ep {mesh.ep} needs {ledger.total / 2**30:.0f} GiB of "
                f"{ledger.capacity / 2**30:.0f} GiB a GPU; the largest part is {largest.what}, "
                f"{largest.bytes / 2**30:.0f} GiB"
            )
            if nearest is None or over < nearest[0]:
                nearest = (over, text)
    if nearest is None:
        if budget == 1 and resolved.cluster.node.gpus < 2:
            return NoLayout(
                "trainer and engines run on separate GPUs, and the cluster has one GPU",
                "a cluster with at least 2 GPUs",
            )
        return NoLayout("no mesh satisfies the pinned degrees", "let trainer.parallel be auto")
    return NoLayout(f"no trainer mesh fits: {nearest[1]}", "more nodes, or a shorter sequence.seq_len")


def _engine_nodes(resolved: Resolved, mesh: TrainerLayout) -> tuple[int, ...]:
    budget = _node_budget(resolved)
    return (0,) if budget == 1 else tuple(range(budget - len(mesh.nodes)))


def _gpus_left(resolved: Resolved, mesh: TrainerLayout) -> int:
    """GPUs of each engine node: all of it, or what the trainer leaves on a shared one."""
    gpus = resolved.cluster.node.gpus
    return gpus if _node_budget(resolved) > 1 else gpus - mesh.ranks_per_node


def _best_engines(
    resolved: Resolved, nodes: tuple[int, ...], gpus: int
) -> tuple[float, tuple[EngineLayout, ...]] | None:
    spec, facts, gpu, cluster = resolved.spec, resolved.facts, resolved.gpu, resolved.cluster
    need = spec.sequence.seq_len
    apart = spec.inference.disaggregate
    best: tuple[float, tuple[EngineLayout, ...]] | None = None

    def consider(engines: tuple[EngineLayout, ...]) -> None:
        nonlocal best
        seconds = rollout_seconds(spec, facts, gpu, cluster, engines)
        if best is None or seconds < best[0]:
            best = (seconds, engines)

    if apart in ("auto", False):
        for engine in role_layouts("engine", spec, facts, gpu, cluster, nodes, gpus):
            if engine.kv_tokens >= need:
                consider((engine,))
    if apart in ("auto", True) and len(nodes) >= 2:
        for count in _prefill_counts(resolved, len(nodes)):
            first, rest = nodes[:count], nodes[count:]
            prefills = [
                e for e in role_layouts("prefill", spec, facts, gpu, cluster, first, gpus) if e.kv_tokens >= need
            ]
            decodes = [e for e in role_layouts("decode", spec, facts, gpu, cluster, rest, gpus) if e.kv_tokens >= need]
            for prefill in prefills:
                for decode in decodes:
                    if prefill.tp <= decode.tp:
                        consider((prefill, decode))
    return best


def _prefill_counts(resolved: Resolved, nodes: int) -> tuple[int, ...]:
    inference = resolved.spec.inference
    if inference.prefill_nodes != "auto":
        return (int(inference.prefill_nodes),)
    if inference.decode_nodes != "auto":
        return (nodes - int(inference.decode_nodes),)
    return tuple(range(1, nodes))


def _moved(engines: tuple[EngineLayout, ...], nodes: tuple[int, ...]) -> tuple[EngineLayout, ...]:
    """The same layouts on these nodes, in order."""
    start, found = 0, []
    for engine in engines:
        found.append(dataclasses.replace(engine, nodes=nodes[start : start + len(engine.nodes)]))
        start += len(engine.nodes)
    return tuple(found)


def replay_wanted(resolved: Resolved) -> bool:
    """Router replay: what the spec says; auto is yes for a model with experts."""
    asked = resolved.spec.algorithm.router_replay
    return bool(resolved.facts.num_experts) if asked == "auto" else bool(asked)


def inflight_groups(resolved: Resolved) -> int:
    """Groups generated at once: the forecast's own rule, in groups."""
    return inflight_rollouts(resolved.spec) // resolved.spec.algorithm.group_size


def _choice(
    resolved: Resolved,
    mesh: TrainerLayout,
    engines: tuple[EngineLayout, ...],
    trainer: float,
    rollouts: float,
    orchestrator: int | None = None,
) -> Choice:
    spec, cluster = resolved.spec, resolved.cluster
    target = cluster.launcher if spec.target == "auto" else spec.target
    servers = sum(e.servers for e in engines)
    router = spec.inference.router
    if router == "auto":
        router = "direct" if len(engines) == 1 and servers == 1 else "vllm-router"
    replay = replay_wanted(resolved)
    apart = len(engines) > 1
    offload = spec.inference.kv_offload
    # with prefill and decode apart, replay needs the store as KV path: vLLM refuses it with point-to-point transfer
    stored = offload == "mooncake" or (offload == "auto" and apart and replay)
    front = engines[0].nodes[0]
    if orchestrator is None:
        orchestrator = mesh.nodes[0]
    store = StoreLayout(
        master_node=front,
        nodes=tuple(n for e in engines for n in e.nodes),
        segment_bytes=int(cluster.node.memory * STORE_SHARE),
    ) if stored else None  # fmt: skip
    layout = Layout(
        target=target,
        nodes=max(*mesh.nodes, *(n for e in engines for n in e.nodes), orchestrator) + 1,
        trainer=mesh,
        engines=engines,
        orchestrator_node=orchestrator,
        router=router,
        router_node=front,
        store=store,
        router_replay=replay,
        max_inflight_groups=inflight_groups(resolved),
        ports=port_ledger(
            cluster.base_port,
            engines,
            mesh.nodes[0],
            orchestrator,
            front if router == "vllm-router" else None,
            front if stored else None,
        ),
    )
    sync = exposed_sync(spec, resolved.facts, resolved.gpu, cluster, layout)
    return Choice(layout=layout, step=max(trainer, rollouts) + sync, trainer=trainer, rollouts=rollouts)


def _solve_cpu(resolved: Resolved) -> Solution:
    """One machine: all on node 0. Three nodes or more: engine 0, orchestrator 1, trainer on the rest."""
    spec, budget = resolved.spec, _node_budget(resolved)
    spread = budget >= 3
    asked = spec.trainer.nodes
    count = 1 if asked == "auto" else int(asked)
    nodes = tuple(range(2, 2 + count)) if spread else (budget - 1,)
    parallel = spec.trainer.parallel
    ranks = 1 if parallel == "auto" or parallel.dp_shard == "auto" else max(1, int(parallel.dp_shard) // len(nodes))
    engine = cpu_engine(spec, resolved.facts, resolved.gpu, 0)
    found = []
    for mesh in trainer_layouts(spec, resolved.facts, nodes, ranks, "cpu"):
        seconds = trainer_seconds(spec, resolved.facts, resolved.gpu, resolved.cluster, mesh)
        rollouts = rollout_seconds(spec, resolved.facts, resolved.gpu, resolved.cluster, (engine,))
        found.append(_choice(resolved, mesh, (engine,), seconds, rollouts, 1 if spread else 0))
    if not found:
        raise NoLayout("no mesh satisfies the pinned degrees", "let trainer.parallel be auto")
    found.sort(key=lambda c: _rank(resolved, c))
    return Solution(best=found[0], others=tuple(found[1:]))
