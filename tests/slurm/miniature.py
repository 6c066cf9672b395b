"""A plan whose roles are the stand-ins: two engines on nodes 0 and 1, orchestrator and trainer on the last node."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from prlc.schema.plan import Launch, Plan, SlurmOptions, Table
from prlc.schema.preflight import PortNeed, PreflightConfig
from prlc.schema.topology import Gate

from tests.slurm import stand_in
from tests.templates.plans import plan

PROGRAM = str(Path(stand_in.__file__).resolve())
VENV = str(Path(sys.executable).parent.parent)
EXPECTED = [10 * step + i for step in range(1, stand_in.STEPS + 1) for i in range(2)]


def miniature(
    target: str = "slurm",
    *,
    name: str = "mini",
    nodes: int = 3,
    base: int = 23000,
    requeue: bool = True,
    seconds: float = 0.15,
    options: tuple[tuple[str, str], ...] = (("time", "10"),),
) -> Plan:
    """The plan; its ports are base + 1 and base + 2; a step takes `seconds`."""
    first = plan(target, name=name, nodes=nodes, ports=(base + 1, base + 2))
    engines = first.topology.roles[0].endpoints
    gates = (Gate(role="engine", deadline=60.0),)
    roles = tuple(
        dataclasses.replace(role, restarts=2) if role.name == "engine" else dataclasses.replace(role, gates=gates)
        for role in first.topology.roles
    )
    urls = tuple(f"http://{{NODE_{e.node}}}:{e.port}" for e in engines)
    last = nodes - 1
    engine = dataclasses.replace(
        first.launches[0],
        command=("python", "-u", PROGRAM, "engine"),
        tables=(
            Table(name="NODE", values=tuple(str(e.node) for e in engines)),
            Table(name="PORT", values=tuple(str(e.port) for e in engines)),
        ),
    )
    others = tuple(
        Launch(
            role=role, nodes=(last,), tasks_per_node=1, cpus_per_task=1, gpus_per_task=0,
            command=("python", "-u", PROGRAM, role), flags=(urls if role == "orchestrator" else (str(seconds),),),
        )
        for role in ("orchestrator", "trainer")
    )  # fmt: skip
    preflight = PreflightConfig(
        device="cpu", gpus=0, model="none", model_type="none",
        ports=tuple(PortNeed(node=e.node, port=e.port, owner=f"engine-{e.index} http") for e in engines),
    )  # fmt: skip
    check = Launch(
        role="preflight", nodes=tuple(range(nodes)), tasks_per_node=1, cpus_per_task=1, gpus_per_task=0, deadline=110,
        command=("python", "-m", "prlc.runtime.preflight", "{INDEX}"),
    )  # fmt: skip
    return dataclasses.replace(
        first,
        topology=dataclasses.replace(first.topology, roles=roles),
        launches=(engine, *others),
        preflight=preflight,
        checks=(check,),
        slurm=SlurmOptions(options=options, requeue=requeue) if target == "slurm" else SlurmOptions(),
    )


def trained(run: Path) -> list[int]:
    """What the newest complete checkpoint says was trained."""
    folder = max(run.glob("checkpoints/step_*/COMPLETE"), key=lambda path: path.parent.name).parent
    return list(json.loads((folder / "content").read_text()))


def steps(run: Path) -> int:
    """Lines of the trainer's log of steps."""
    log = run / "trained.log"
    return len(log.read_text().splitlines()) if log.exists() else 0
