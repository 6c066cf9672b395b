"""The port ledger: ports from the cluster's base port on, none used twice in a run."""

from __future__ import annotations

from prlc.compiler.layout import EngineLayout, Layout, PortUse

DATA_PARALLEL_PORTS = 32  # vLLM takes consecutive ports from the data-parallel master's on


def server_node(engine: EngineLayout, server: int, gpus_per_node: int) -> int:
    """Node index of one server: the servers of a replica fill its nodes in order. gpus_per_node >= tp."""
    per_node = max(1, gpus_per_node // engine.tp)
    return engine.nodes[min(server // per_node, len(engine.nodes) - 1)]


def ports(layout: Layout, *, base_port: int, gpus_per_node: int) -> tuple[PortUse, ...]:
    """Ports of every process that listens. Raises ValueError when the range leaves 65535."""
    uses: list[PortUse] = []
    following = base_port

    def take(node: int, role: str, index: int, purpose: str, width: int = 1) -> None:
        nonlocal following
        uses.append(PortUse(node=node, port=following, role=role, index=index, purpose=purpose))
        following += width

    take(layout.trainer.nodes[0], "trainer", 0, "rendezvous")
    take(layout.orchestrator_node, "orchestrator", 0, "metrics")
    apart = len(layout.engines) > 1
    for engine in layout.engines:
        for server in range(engine.servers):
            node = server_node(engine, server, gpus_per_node)
            take(node, engine.role, server, "http")
            if apart:
                take(node, engine.role, server, "side_channel")
            if engine.dp > 1 and server % engine.dp == 0:
                take(node, engine.role, server, "data_parallel_rpc")
                take(node, engine.role, server, "data_parallel_master", DATA_PARALLEL_PORTS)
    if layout.router == "vllm-router":
        take(layout.router_node, "router", 0, "http")
        take(layout.router_node, "router", 0, "metrics")
    if layout.store is not None:
        take(layout.store.master_node, "store", 0, "rpc")
        take(layout.store.master_node, "store", 0, "metrics")
    if following > 65536:
        raise ValueError(f"ports {base_port}..{following - 1} leave the range; lower the cluster's base_port")
    return tuple(uses)
