"""config/topology.yaml: which process runs on which node of the job, on which port, and waits for whom.

A bundle knows nodes by their index in the allocation (0 .. nodes-1), never by name. At job start the launcher
writes the attempt's `nodes` file (one address a line, in index order); `prlc.runtime.ops.rendezvous` joins the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Seconds, doc

ServiceKind = Literal["trainer", "orchestrator", "engine", "prefill", "decode", "router", "store", "environment"]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One process of a role."""

    index: int = doc("Index of the process within its role, from 0.", minimum=0)
    node: int = doc("Index of its node in the allocation, from 0.", minimum=0)
    port: int = doc("Port that it listens on; 0 if it does not listen.", minimum=0, maximum=65535)
    devices: tuple[int, ...] = doc("Local accelerator indexes that it sees; empty on a CPU.", default=())
    data_parallel_rank: int = doc("Its rank in its engine group's data-parallel group.", default=0, minimum=0)
    group: int = doc("Replica number: engines of one group form one expert-parallel world.", default=0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What must be ready before a role starts its command."""

    role: str = doc("Role that must be ready.")
    deadline: Seconds = doc("After this long without it the waiting process fails with a message that names it.")


@dataclass(frozen=True, kw_only=True)
class Role:
    """One role of the run: what it is, where its processes are, what it waits for and how its readiness is seen."""

    name: str = doc("Name of the role: the name of its script in roles/.", pattern="^[a-z][a-z0-9-]*$")
    kind: ServiceKind = doc("What it is.")
    endpoints: tuple[Endpoint, ...] = doc("Its processes, in index order.")
    ready: Literal["health", "port", "file", "none"] = doc(
        "When its agent writes ready/<role>-<index>. health: the process itself listens on its port and answers "
        "GET /health with 200; port: it listens; file: it writes the file by itself; none: nobody waits for it."
    )
    gates: tuple[Gate, ...] = doc("What it waits for before its command starts.", default=())
    finishes: bool = doc(
        "True: the run is over when this role's processes have ended well. False: a service, stopped at the end."
    )
    restarts: int = doc(
        "How often a dead process of this role is started again; then the run fails.", default=0, minimum=0
    )
    stop_grace: Seconds = doc("Time between TERM and KILL when it is stopped.", default=30.0)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """config/topology.yaml."""

    run: str = doc("Name of the run.")
    nodes: int = doc("Nodes of the allocation.", minimum=1)
    roles: tuple[Role, ...] = doc("Roles, in start order.")
