"""How each role starts: the whole of its script and its step of the job, decided, as data."""

from __future__ import annotations

from prlc.compiler.bundle.fabric import collective_variables
from prlc.compiler.bundle.launch_engine import engine
from prlc.compiler.layout import LaunchInputs
from prlc.schema.plan import Launch, Variable

OFFLINE = (
    Variable(name="HF_HUB_OFFLINE", value="1", why="a job fetches nothing"),
    Variable(name="DO_NOT_TRACK", value="1"),
)


def launches(inputs: LaunchInputs) -> tuple[Launch, ...]:
    """One Launch a role, in the topology's order. Raises ValueError, KeyError (no port in the ledger)."""
    made: dict[str, Launch] = {e.role: engine(inputs, e) for e in inputs.layout.engines}
    for role in inputs.topology.roles:
        if role.kind == "trainer":
            made[role.name] = _trainer(inputs, role.name)
        elif role.kind == "orchestrator":
            made[role.name] = _orchestrator(inputs, role.name)
        elif role.kind == "router":
            made[role.name] = _router(inputs, role.name)
        elif role.kind == "store":
            made[role.name] = _store(inputs, role.name)
        elif role.name not in made:
            raise ValueError(f"role {role.name!r} of kind {role.kind!r} has no launch")
    return tuple(made[role.name] for role in inputs.topology.roles)


def _trainer(inputs: LaunchInputs, role: str) -> Launch:
    layout, cuda = inputs.layout.trainer, inputs.gpu.device == "cuda"
    if cuda:
        more = (Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", why="less fragmentation"),)
    else:
        more = (Variable(name="OMP_NUM_THREADS", value="1", why="ranks and engines share the cores"),)
    return Launch(
        role=role,
        nodes=layout.nodes,
        tasks_per_node=1,
        cpus_per_task=inputs.cluster.node.cpus,
        gpus_per_task=layout.ranks_per_node if cuda else 0,
        environment=(*OFFLINE, *more, *collective_variables(inputs.cluster.node)),
        command=("torchrun",),
        flags=(
            ("--nnodes", str(len(layout.nodes))),
            ("--nproc-per-node", str(layout.ranks_per_node)),
            ("--node-rank", "{INDEX}"),
            ("--master-addr", f"{{NODE_{layout.nodes[0]}}}"),
            ("--master-port", str(inputs.layout.port(role, 0, "rendezvous"))),
            ("-m", "prlc.runtime.trainer"),
            ("--config", "{BUNDLE}/config/trainer.yaml"),
        ),
    )


def _orchestrator(inputs: LaunchInputs, role: str) -> Launch:
    return Launch(
        role=role,
        nodes=(inputs.layout.orchestrator_node,),
        tasks_per_node=1,
        cpus_per_task=1 if inputs.gpu.device == "cpu" else 8,
        gpus_per_task=0,
        environment=(*OFFLINE, Variable(name="OMP_NUM_THREADS", value="1")),
        command=("python", "-m", "prlc.runtime.orchestrator"),
        flags=(("--config", "{BUNDLE}/config/orchestrator.yaml"),),
    )


def _router(inputs: LaunchInputs, role: str) -> Launch:
    apart = any(e.role == "prefill" for e in inputs.layout.engines)
    flags: list[tuple[str, ...]] = [
        ("--host", f"{{NODE_{inputs.layout.router_node}}}"),
        ("--port", str(inputs.layout.port(role, 0, "http"))),
        ("--prometheus-host", f"{{NODE_{inputs.layout.router_node}}}"),
        ("--prometheus-port", str(inputs.layout.port(role, 0, "metrics"))),
        ("--policy", "sticky_least_loaded"),
    ]
    if apart:
        flags.append(("--vllm-pd-disaggregation",))
    served = {r.name: r for r in inputs.topology.roles}
    for layout in inputs.layout.engines:
        urls = tuple(f"http://{{NODE_{e.node}}}:{e.port}" for e in served[layout.role].endpoints)
        if apart:
            flags += [(f"--{layout.role}", url) for url in urls]
        else:
            flags.append(("--worker-urls", *urls))
    return Launch(
        role=role,
        nodes=(inputs.layout.router_node,),
        tasks_per_node=1,
        cpus_per_task=1 if inputs.gpu.device == "cpu" else 8,
        gpus_per_task=0,
        command=("vllm-router",),
        flags=tuple(flags),
    )


def _store(inputs: LaunchInputs, role: str) -> Launch:
    store = inputs.layout.store
    if store is None:
        raise ValueError("the topology has a store, the layout has none")
    return Launch(
        role=role,
        nodes=(store.master_node,),
        tasks_per_node=1,
        cpus_per_task=1 if inputs.gpu.device == "cpu" else 8,
        gpus_per_task=0,
        command=("mooncake_master",),
        flags=(
            (f"-rpc_address={{NODE_{store.master_node}}}",),
            (f"-rpc_port={inputs.layout.port(role, 0, 'rpc')}",),
            (f"-metrics_host={{NODE_{store.master_node}}}",),
            (f"-metrics_port={inputs.layout.port(role, 0, 'metrics')}",),
        ),
    )
