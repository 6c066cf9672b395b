"""A small whole plan whose roles are stub commands: the bundle's shape without engines."""

from __future__ import annotations

from prlc.schema.orchestrator import Environment, OrchestratorConfig, Sampling
from prlc.schema.plan import (
    ClusterSummary,
    Launch,
    ModelSummary,
    Plan,
    RoleSummary,
    SlurmOptions,
    Table,
    Term,
    Variable,
)
from prlc.schema.topology import Endpoint, Gate, Role, Topology
from prlc.schema.trainer import Checkpoint, Loss, Optimizer, Parallel, Replay, TrainerConfig

DEADLINE = 60.0  # s
ENGINE = (
    "import http.server, sys\n"
    "class Health(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers()\n"
    "http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Health).serve_forever()"
)
FINISHER = (
    "import os, pathlib, socket, sys\n"
    "print(os.environ['NAME'], sys.argv[1:], socket.gethostname())\n"
    "(pathlib.Path(os.environ['PRLC_RUN_DIR']) / 'done' / os.environ['PRLC_ROLE']).touch()"
)


def plan(
    target: str = "slurm",
    *,
    name: str = "stub",
    nodes: int = 3,
    ports: tuple[int, int] = (23001, 23002),
    finisher: str = FINISHER,
    value: str = "plain",
    run_dir: str = "runs/stub",
    venv: str = ".venv",
) -> Plan:
    """Two engines on the first nodes, orchestrator and trainer on the last; `value` reaches the trainer."""
    last = nodes - 1
    engines = (
        Endpoint(index=0, node=0, port=ports[0]),
        Endpoint(index=1, node=min(1, last), port=ports[1]),
    )
    gates = (Gate(role="engine", deadline=DEADLINE),)
    topology = Topology(
        run=name,
        nodes=nodes,
        roles=(
            Role(
                name="engine", kind="engine", endpoints=engines, ready="health", finishes=False,
                stop_grace=2.0,
            ),
            Role(
                name="orchestrator", kind="orchestrator", endpoints=(Endpoint(index=0, node=last, port=0),),
                ready="none", gates=gates, finishes=True,
            ),
            Role(
                name="trainer", kind="trainer", endpoints=(Endpoint(index=0, node=last, port=0),),
                ready="none", gates=gates, finishes=True,
            ),
        ),
    )  # fmt: skip
    engine_nodes = tuple(sorted({e.node for e in engines}))
    launches = (
        Launch(
            role="engine", nodes=engine_nodes, tasks_per_node=2 // len(engine_nodes), cpus_per_task=1,
            gpus_per_task=0,
            tables=(
                Table(name="NODE", values=tuple(str(e.node) for e in engines)),
                Table(name="PORT", values=tuple(str(e.port) for e in engines)),
            ),
            command=("python", "-uc", ENGINE), flags=(("{ADDRESS}", "{PORT}"),),
        ),
        *(
            Launch(
                role=role, nodes=(last,), tasks_per_node=1, cpus_per_task=1, gpus_per_task=0,
                environment=(Variable(name="NAME", value=value, why="a reason"),),
                command=("python", "-uc", finisher),
                flags=(("--value", value), ("--bundle", "{BUNDLE}"), ("--head", "http://{NODE_0}:1/{INDEX}")),
            )
            for role in ("orchestrator", "trainer")
        ),
    )  # fmt: skip
    return Plan(
        compiler="0.1.0", name=name, spec_sha256="0" * 64, spec_text=f"name: {name}\n",
        model=ModelSummary(
            name="stub", checkpoint="base", model_type="qwen3_moe", attention="gqa", total_params=1,
            active_params=1, layers=1, moe_layers=1, num_experts=4, top_k=2, replay_bytes_per_token=2,
        ),
        cluster=ClusterSummary(name="stub", target=target, nodes=nodes, gpus_per_node=0, gpu="cpu"),  # type: ignore[arg-type]
        run_dir=run_dir, environment_setup=venv,
        table=(RoleSummary(role="engine", nodes="0-1", gpus=0, layout="2 servers", reason="two"),),
        ledgers=(),
        forecast=Term(name="step", unit="s", low=1, expected=1, high=1, formula="1", source="none"),
        decisions=(), topology=topology,
        trainer=TrainerConfig(
            model="base", model_type="qwen3_moe", seq_len=64, max_steps=1, precision="fp32", device="cpu",
            parallel=Parallel(dp_replicate=1, dp_shard=1, cp=1, ep=1), micro_batch_tokens=64,
            activation_checkpoint="none", optimizer=Optimizer(lr=1e-3),
            loss=Loss(name="masked_is", ratio_low=0.2, ratio_high=5.0),
            replay=Replay(enabled=True, compare="never"), checkpoint=Checkpoint(every_steps=1),
            publish_dtype="float32",
        ),
        orchestrator=OrchestratorConfig(
            model="base", seq_len=64, max_steps=1, batch_size=2, group_size=2, advantage="grpo",
            max_off_policy_steps=1, max_inflight_groups=1, environment=Environment(id="stub"),
            sampling=Sampling(max_tokens=1, max_turns=1), routed_experts=True, route="direct",
            engine_roles=("engine",),
        ),
        launches=launches,
        slurm=SlurmOptions(options=(("time", "10"),) if target == "slurm" else ()),
    )  # fmt: skip
