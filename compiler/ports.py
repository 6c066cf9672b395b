"""One port a process and purpose, counted from the cluster's base port, none twice on a node."""

from __future__ import annotations

from collections import defaultdict

from prlc.compiler.layout import EngineLayout, PortUse

DATA_PARALLEL_MASTER_PORTS = 32  # vLLM takes further ports from the one that it is given


def port_ledger(
    base: int,
    engines: tuple[EngineLayout, ...],
    trainer_node: int,
    orchestrator_node: int,
    router_node: int | None,
    store_node: int | None,
) -> tuple[PortUse, ...]:
    """All ports of a run in a stable order. Two processes of one node never share one."""
    following: dict[int, int] = defaultdict(lambda: base)
    found: list[PortUse] = []

    def take(node: int, role: str, index: int, purpose: str, count: int = 1) -> None:
        found.append(PortUse(node=node, port=following[node], role=role, index=index, purpose=purpose))
        following[node] += count

    take(trainer_node, "trainer", 0, "rendezvous")
    take(orchestrator_node, "orchestrator", 0, "metrics")
    if router_node is not None:
        take(router_node, "router", 0, "http")
        take(router_node, "router", 0, "metrics")
    if store_node is not None:
        take(store_node, "store", 0, "rpc")
        take(store_node, "store", 0, "metrics")
    for layout in engines:
        for index in range(layout.servers):
            node = layout.nodes[index * len(layout.nodes) // layout.servers]
            take(node, layout.role, index, "http")
            if layout.role != "engine":
                take(node, layout.role, index, "side_channel")
            if layout.dp > 1 and index % layout.dp == 0:
                take(node, layout.role, index, "data_parallel_rpc")
                take(node, layout.role, index, "data_parallel_master", DATA_PARALLEL_MASTER_PORTS)
    return tuple(found)
