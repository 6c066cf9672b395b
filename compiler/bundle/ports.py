"""One port a process and purpose, counted from the run's base port, none twice on a node.

Two runs of one user may share a machine, so a run takes a block of the cluster's range by its name. The same run
started twice is refused by its OWNER file, and a port that is held all the same is named by the agent that wants it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from prlc.compiler.layout import EngineLayout, PortUse

if TYPE_CHECKING:
    from prlc.schema.hardware import Cluster
    from prlc.schema.run import RunSpec

DATA_PARALLEL_MASTER_PORTS = 32  # vLLM takes further ports from the one that it is given
BLOCK = 256  # ports of a run on a node
EPHEMERAL = 32768  # first port that Linux gives to outgoing connections: net.ipv4.ip_local_port_range
LAST = 65535
WIDTH = {"data_parallel_master": DATA_PARALLEL_MASTER_PORTS}  # ports of a use, where it is more than one


def port_base(cluster: Cluster, spec: RunSpec) -> int:
    """First port of a run: the spec's, else the block of its name between the cluster's base port and the ephemeral
    ports (or 65535, where the base lies above)."""
    if spec.runtime.base_port != "auto":
        return int(spec.runtime.base_port)
    end = EPHEMERAL if cluster.base_port < EPHEMERAL else LAST + 1
    blocks = max(1, (end - cluster.base_port) // BLOCK)
    chosen = int.from_bytes(hashlib.sha256(spec.name.encode()).digest()[:8], "big") % blocks
    return cluster.base_port + chosen * BLOCK


def last_port(use: PortUse) -> int:
    """Largest port of a use."""
    return use.port + WIDTH.get(use.purpose, 1) - 1


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

    def take(node: int, role: str, index: int, purpose: str) -> None:
        found.append(PortUse(node=node, port=following[node], role=role, index=index, purpose=purpose))
        following[node] = last_port(found[-1]) + 1

    take(0, "preflight", 0, "rendezvous")
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
                take(node, layout.role, index, "data_parallel_master")
    return tuple(found)
