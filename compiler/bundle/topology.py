"""The topology of a layout: roles in start order, their processes, and who waits for whom."""

from __future__ import annotations

from typing import Literal

from prlc.compiler.layout import EngineLayout, Layout
from prlc.schema.topology import Endpoint, Gate, Role, ServiceKind, Topology

# An engine of a trillion parameters needs most of this to read its weights and to warm its kernels up.
ENGINE_DEADLINE = 4200.0
CPU_ENGINE_DEADLINE = 600.0
SERVICE_DEADLINE = 120.0
RESTARTS = 2  # of a dead service, before the run fails
SERVICE_GRACE = 15.0  # a service has nothing to save, and a finished run gives its nodes back at once


def topology(name: str, layout: Layout, device: str, trainer_grace: float) -> Topology:
    """Roles of a run. The orchestrator waits for engines and router; the trainer waits for batches, not for them.

    `trainer_grace` is the time in seconds that the trainer has to finish a step and to save when it is stopped.
    """
    engine_deadline = CPU_ENGINE_DEADLINE if device == "cpu" else ENGINE_DEADLINE
    roles: list[Role] = []
    engine_gates: list[Gate] = []
    if layout.store is not None:
        port = layout.port("store", 0, "rpc")
        endpoint = Endpoint(index=0, node=layout.store.master_node, port=port)
        roles.append(_service("store", "store", (endpoint,), "port", ()))
        engine_gates.append(Gate(role="store", deadline=SERVICE_DEADLINE))
    waits: list[Gate] = []
    for engines in layout.engines:
        roles.append(
            _service(
                engines.role, engines.role, _engine_endpoints(layout, engines, device), "health", tuple(engine_gates)
            )
        )
        waits.append(Gate(role=engines.role, deadline=engine_deadline))
    if layout.router == "vllm-router":
        endpoint = Endpoint(index=0, node=layout.router_node, port=layout.port("router", 0, "http"))
        roles.append(_service("router", "router", (endpoint,), "health", tuple(waits)))
        waits.append(Gate(role="router", deadline=engine_deadline + SERVICE_DEADLINE))
    roles.append(
        Role(
            name="orchestrator",
            kind="orchestrator",
            endpoints=(Endpoint(index=0, node=layout.orchestrator_node, port=0),),
            ready="none",
            gates=tuple(waits),
            finishes=True,
        )
    )
    trainer = layout.trainer
    roles.append(
        Role(
            name="trainer",
            kind="trainer",
            endpoints=tuple(
                Endpoint(
                    index=i,
                    node=node,
                    port=0,
                    devices=tuple(range(trainer.ranks_per_node)) if device == "cuda" else (),
                )
                for i, node in enumerate(trainer.nodes)
            ),
            ready="none",
            finishes=True,
            stop_grace=trainer_grace,
        )
    )
    return Topology(run=name, nodes=layout.nodes, roles=tuple(roles))


def _service(
    name: str,
    kind: ServiceKind,
    endpoints: tuple[Endpoint, ...],
    ready: Literal["health", "port"],
    gates: tuple[Gate, ...],
) -> Role:
    return Role(
        name=name,
        kind=kind,
        endpoints=endpoints,
        ready=ready,
        gates=gates,
        finishes=False,
        restarts=RESTARTS,
        stop_grace=SERVICE_GRACE,
    )


def _engine_endpoints(layout: Layout, engines: EngineLayout, device: str) -> tuple[Endpoint, ...]:
    per_node = engines.servers // len(engines.nodes)
    # on a node that they share, the trainer has the first GPUs
    first = layout.trainer.ranks_per_node if set(engines.nodes) & set(layout.trainer.nodes) else 0
    found = []
    for index in range(engines.servers):
        local = index % per_node * engines.tp + first
        found.append(
            Endpoint(
                index=index,
                node=engines.nodes[index // per_node],
                port=layout.port(engines.role, index, "http"),
                devices=tuple(range(local, local + engines.tp)) if device == "cuda" else (),
                data_parallel_rank=index % engines.dp,
                group=index // engines.dp,
            )
        )
    return tuple(found)
