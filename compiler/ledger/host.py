"""Host memory node by node: what roles that share a node need is added. And the run's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger.engine import engine_ledger
from prlc.compiler.ledger.files import file_ledger
from prlc.compiler.ledger.nodes import (
    engine_parts,
    entry,
    orchestrator_parts,
    page_cache,
    rollout_tokens,
    store_parts,
    trainer_parts,
)
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.schema.plan import Ledger

if TYPE_CHECKING:
    from prlc.catalog import Cluster, ModelFacts
    from prlc.compiler.layout import Layout
    from prlc.schema.hardware import Gpu
    from prlc.schema.plan import LedgerEntry
    from prlc.schema.run import RunSpec

__all__ = ["host_ledgers", "rollout_tokens"]

SYSTEM = 16 * 2**30  # operating system and page cache that a node needs to breathe: an assumption


def host_ledgers(
    spec: RunSpec, facts: ModelFacts, cluster: Cluster, layout: Layout, gpu: Gpu | None = None
) -> tuple[Ledger, ...]:
    """One `host` ledger for each set of roles that shares a node, named e.g. "trainer + orchestrator node", and the
    filesystem's. On a CPU cluster `gpu` (its Gpu entry) adds the processes, whose memory is the node's.
    """
    memory = int(cluster.node.memory)
    cpu = gpu is not None and gpu.device == "cpu"
    small = memory < 4 * SYSTEM
    system = entry("system", memory // 8 if small else SYSTEM, "1/8 of the node" if small else "16 GiB")
    parts: dict[str, list[LedgerEntry]] = {"trainer": trainer_parts(spec, facts, layout, not cpu)}
    places: dict[str, tuple[int, ...]] = {"trainer": layout.trainer.nodes}
    for engine in layout.engines:
        parts[engine.role] = engine_parts(facts, engine, layout, not cpu)
        places[engine.role] = engine.nodes
    parts["orchestrator"] = orchestrator_parts(spec, facts, layout)
    places["orchestrator"] = (layout.orchestrator_node,)
    if layout.store is not None:
        parts["store"], places["store"] = store_parts(layout), layout.store.nodes
    if gpu is not None and cpu:
        for role, processes in _processes(spec, facts, gpu, layout).items():
            parts[role] += processes
    on: dict[int, tuple[str, ...]] = {}
    for role, nodes in places.items():
        for node in nodes:
            on[node] = (*on.get(node, ()), role)
    kinds = dict.fromkeys(on[node] for node in sorted(on))
    found = []
    for roles in kinds:
        entries = [system, *(part for role in roles for part in parts[role])]
        if "trainer" in roles:
            stays = sum(part.bytes for part in entries if part.phase == "always")
            entries += page_cache(spec, facts, layout, memory - stays)
        name = " + ".join(role for role in roles if role != "store" or len(roles) == 1) + " node"
        found.append(Ledger(role=name, resource="host", capacity=memory, entries=tuple(entries)))
    return (*found, file_ledger(spec, facts, cluster, layout))


def _processes(spec: RunSpec, facts: ModelFacts, gpu: Gpu, layout: Layout) -> dict[str, list[LedgerEntry]]:
    """Processes of a CPU cluster, each with the total of its own ledger."""
    ranks = layout.trainer.ranks_per_node
    one = trainer_ledger(facts, gpu, layout.trainer, spec.trainer.precision, spec.sequence.seq_len).total
    made = {"trainer": [entry("trainer processes", ranks * one, f"{ranks} ranks x {one} B of their ledger")]}
    for engine in layout.engines:
        servers = -(-engine.servers // len(engine.nodes))
        one = engine_ledger(facts, gpu, engine, spec.inference.precision, layout.router_replay).total
        text = f"{servers} servers x {one} B of their ledger"
        made[engine.role] = [entry(f"{engine.role} processes", servers * one, text)]
    return made
