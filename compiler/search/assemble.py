"""A mesh and engines as one layout: who runs where, how requests and KV travel, what is in flight."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from prlc.compiler.bundle.ports import port_base, port_ledger
from prlc.compiler.forecast.loop import inflight_rollouts
from prlc.compiler.layout import EngineLayout, Layout, StoreLayout, TrainerLayout

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved

STORE_SHARE = 0.5  # of host memory; the rest is for weights on load, page cache and the operating system


def replay_wanted(resolved: Resolved) -> bool:
    """Router replay: what the spec says; auto is yes for a model with experts."""
    asked = resolved.spec.algorithm.router_replay
    return bool(resolved.facts.num_experts) if asked == "auto" else bool(asked)


def inflight_groups(resolved: Resolved) -> int:
    """Groups generated at once: the forecast's own rule, in groups."""
    return inflight_rollouts(resolved.spec) // resolved.spec.algorithm.group_size


def with_inflight(resolved: Resolved) -> Resolved:
    """The spec with the groups in flight as a number: the rule that finds it is asked once, not for each layout."""
    algorithm = dataclasses.replace(resolved.spec.algorithm, max_inflight_groups=inflight_groups(resolved))
    return dataclasses.replace(resolved, spec=dataclasses.replace(resolved.spec, algorithm=algorithm))


def assemble(
    resolved: Resolved, mesh: TrainerLayout, engines: tuple[EngineLayout, ...], orchestrator: int | None = None
) -> Layout:
    """The layout without its ports: what ledgers and forecast judge. The orchestrator is on the first trainer node."""
    spec, cluster = resolved.spec, resolved.cluster
    router = spec.inference.router
    if router == "auto":
        router = "direct" if len(engines) == 1 and sum(e.servers for e in engines) == 1 else "vllm-router"
    replay = replay_wanted(resolved)
    offload = spec.inference.kv_offload
    # with prefill and decode apart, replay needs the store as KV path: vLLM refuses it with point-to-point transfer
    stored = offload == "mooncake" or (offload == "auto" and len(engines) > 1 and replay)
    front = engines[0].nodes[0]
    if orchestrator is None:
        orchestrator = mesh.nodes[0]
    engine_nodes = tuple(n for e in engines for n in e.nodes)
    store = None
    if stored:
        segment = int(cluster.node.memory * STORE_SHARE)
        store = StoreLayout(master_node=front, nodes=engine_nodes, segment_bytes=segment)
    return Layout(
        target=cluster.launcher if spec.target == "auto" else spec.target,
        nodes=max(*mesh.nodes, *engine_nodes, orchestrator) + 1,
        trainer=mesh,
        engines=engines,
        orchestrator_node=orchestrator,
        router=router,
        router_node=front,
        store=store,
        router_replay=replay,
        max_inflight_groups=inflight_groups(resolved),
    )


def with_ports(resolved: Resolved, layout: Layout) -> Layout:
    """The layout with a port for each process that listens."""
    ports = port_ledger(
        port_base(resolved.cluster, resolved.spec),
        layout.engines,
        layout.trainer.nodes[0],
        layout.orchestrator_node,
        layout.router_node if layout.router == "vllm-router" else None,
        layout.store.master_node if layout.store else None,
    )
    return dataclasses.replace(layout, ports=ports)
