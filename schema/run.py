"""run.yaml: what a person writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Auto, Seconds, doc
from prlc.schema.orchestrator import Environment
from prlc.schema.trainer import LossName

Wish = Literal["router_replay", "disaggregate"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What the plan is chosen for: exactly one of the two keys."""

    step_time: Seconds | None = doc("Fewest GPUs whose step takes at most this long.", default=None)
    minimize: Literal["step_time", "gpus", "gpu_hours_per_token"] | None = doc("What to make small.", default=None)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The RL algorithm."""

    name: Literal["grpo"] = doc("Algorithm.", default="grpo")
    batch_size: int = doc("Rollouts of one step; a multiple of group_size.", minimum=1, examples=(256,))
    group_size: int = doc("Rollouts of one task, compared with each other.", minimum=2, examples=(16,))
    max_off_policy_steps: int = doc("Largest lag of a trained rollout in policy versions.", minimum=0, examples=(8,))
    max_steps: int = doc("Optimizer steps of the run.", default=1000, minimum=1)
    router_replay: bool | Auto = doc("Replay the engine's experts in the trainer.", default="auto")
    compare_replay: Literal["never", "first_batch", "every_step"] = doc(
        "When the mismatch KL without replay is measured too.", default="first_batch"
    )
    loss: LossName = doc("Policy loss.", default="masked_is")
    ratio_bounds: tuple[float, float] | Auto = doc(
        "Lower and upper bound of the loss's importance ratio; auto: those of the loss's source.", default="auto"
    )
    kl_weight: float = doc("Weight of KL(engine || trainer) in the loss.", default=0.0, minimum=0)
    stale_cap: float | None = doc(
        "Tokens written by older weights get the weight min(ratio, stale_cap) instead of the loss's bounds.",
        default=None,
        minimum=0,
        examples=(2.0,),
    )
    advantage: Literal["grpo", "mean"] = doc("Advantage of a group.", default="grpo")
    max_inflight_groups: int | Auto = doc("Groups generated at once.", default="auto", minimum=1)
    temperature: float = doc("Sampling temperature.", default=1.0, minimum=0)
    evaluate_every: int = doc("Steps between evaluations; 0: only the last policy.", default=0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """Lengths."""

    seq_len: int = doc("Longest sample, prompt and output, in tokens.", minimum=1, examples=(32768,))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A count by its mean and tail."""

    mean: float = doc("Mean.", minimum=0, examples=(4,))
    p95: float | None = doc("95th percentile; absent: no tail.", default=None, minimum=0)


@dataclass(frozen=True, kw_only=True)
class TimeSpread:
    """A time by its mean and tail."""

    mean: Seconds = doc("Mean.", examples=("4s",))
    p95: Seconds | None = doc("95th percentile; absent: no tail.", default=None)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a rollout looks like; the forecast and the prefill:decode split rest on it."""

    environment: Environment = doc("Task source.")
    turns: Spread = doc("Model turns of a rollout.")
    new_tokens_per_turn: Spread = doc("Prompt tokens that are new in a turn: tool output and user text.")
    output_tokens_per_turn: Spread = doc("Tokens that the model writes in a turn.")
    tool_time: TimeSpread = doc("Time between two turns.")
    prompt_tokens: Spread | None = doc("Tokens of the first prompt; absent: new_tokens_per_turn.", default=None)
    max_output_tokens_per_turn: int | Auto = doc("Limit of one turn.", default="auto", minimum=1)
    max_turns: int | Auto = doc("Limit of turns.", default="auto", minimum=1)


@dataclass(frozen=True, kw_only=True)
class ParallelSpec:
    """Degrees that are held; each may be auto."""

    dp_replicate: int | Auto = doc("HSDP replicas.", default="auto", minimum=1)
    dp_shard: int | Auto = doc("FSDP2 shards.", default="auto", minimum=1)
    cp: int | Auto = doc("Context-parallel ranks.", default="auto", minimum=1)
    ep: int | Auto = doc("Expert-parallel ranks.", default="auto", minimum=1)


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """Optimizer."""

    name: Literal["adamw", "muon"] = doc("AdamW, or Muon for hidden matrices and AdamW for the rest.", default="adamw")
    lr: float = doc("Learning rate.", minimum=0, examples=(1e-6,))
    weight_decay: float = doc("Decoupled weight decay.", default=0.0, minimum=0)
    warmup_steps: int = doc("Steps of linear warm-up.", default=0, minimum=0)
    schedule: Literal["constant", "linear", "cosine"] = doc(
        "Rate after the warm-up: constant, or falling towards 0 at the end of the run.", default="constant"
    )
    max_grad_norm: float = doc("Global gradient norm limit.", default=1.0, minimum=0)
    offload: Literal["none", "cpu"] | Auto = doc("Where its state lives.", default="auto")


@dataclass(frozen=True, kw_only=True)
class TrainerSpec:
    """Trainer."""

    precision: Literal["fp32", "bf16", "fp8"] = doc("Compute precision; masters are fp32.", default="bf16")
    parallel: ParallelSpec | Auto = doc("Mesh degrees.", default="auto")
    optimizer: OptimizerSpec = doc("Optimizer.")
    nodes: int | Auto = doc("Trainer nodes.", default="auto", minimum=1)
    activation_checkpoint: Literal["none", "selective", "full"] | Auto = doc("Recompute.", default="auto")
    checkpoint_every: int = doc("Steps between checkpoints.", default=20, minimum=1)
    keep_checkpoints: int = doc("Complete checkpoints kept; 0 keeps all.", default=2, minimum=0)


@dataclass(frozen=True, kw_only=True)
class InferenceSpec:
    """Engines."""

    precision: Literal["fp32", "bf16", "fp8"] = doc("Weight precision of the engines.", default="bf16")
    tensor_parallel: int | Auto = doc("Tensor-parallel ranks of an engine.", default="auto", minimum=1)
    data_parallel: int | Auto = doc("Data-parallel ranks of a replica.", default="auto", minimum=1)
    expert_parallel: bool | Auto = doc("Shard experts over a replica's ranks.", default="auto")
    disaggregate: bool | Auto = doc("Prefill and decode on separate engines.", default="auto")
    prefill_nodes: int | Auto = doc("Prefill nodes, all replicas.", default="auto", minimum=1)
    decode_nodes: int | Auto = doc("Decode nodes, all replicas.", default="auto", minimum=1)
    kv_offload: Literal["none", "mooncake"] | Auto = doc("Where KV cache goes beyond HBM.", default="auto")
    router: Literal["direct", "vllm-router"] | Auto = doc("How requests reach engines.", default="auto")


@dataclass(frozen=True, kw_only=True)
class Container:
    """The image that every step runs in, by pyxis and enroot; the job pulls nothing by itself."""

    image: str = doc("A .sqsh file, or REGISTRY#IMAGE@sha256:DIGEST.", examples=("/images/prlc.sqsh",))
    mounts: tuple[str, ...] = doc("SOURCE:DESTINATION[:FLAGS], each.", default=())


@dataclass(frozen=True, kw_only=True)
class SlurmSpec:
    """The batch job."""

    partition: str | None = doc("Partition.", default=None)
    account: str | None = doc("Account.", default=None)
    qos: str | None = doc("Quality of service.", default=None)
    reservation: str | None = doc("Reservation.", default=None)
    constraint: str | None = doc("Node features.", default=None)
    time: Seconds | None = doc("Time limit.", default=None)
    exclude: str | None = doc("Nodes to leave out.", default=None)
    switches: int | None = doc("Leaf switches that the nodes may span at most.", default=None, minimum=1)
    segment: int | None = doc("Nodes of a block that are placed together (topology/block).", default=None, minimum=1)
    comment: str | None = doc("Comment of the job, one word.", default=None)
    mail_user: str | None = doc("Who is written to.", default=None)
    mail_type: str | None = doc("When, e.g. FAIL,REQUEUE,TIME_LIMIT.", default=None)
    requeue: bool = doc(
        "After a lost node, the time limit or a failure that left a newer checkpoint, the job goes on by itself.",
        default=True,
    )
    signal_time: Seconds | Auto = doc(
        "Time before the limit at which the trainer is told to save; auto: two steps and a minute.", default="auto"
    )
    container: Container | None = doc("Image of every step; absent: the venv alone.", default=None)
    extra: tuple[str, ...] = doc("Further #SBATCH options, each --name or --name=value.", default=())


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The environment that the job uses and never changes, and where the run is kept."""

    venv: str = doc("Folder of an existing virtual environment with prlc's runtime.", default=".venv")
    run_dir: str | Auto = doc("Folder of the run, on a filesystem that all nodes share.", default="auto")
    base_port: int | Auto = doc(
        "First of the run's 256 ports on each node; auto: a block of the cluster's range, by the run's name.",
        default="auto",
        minimum=1024,
        maximum=65280,
    )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """run.yaml."""

    name: str = doc("Name of the run.", pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=("my-run",))
    model: str = doc(
        "Catalog name, or a path to a model file or to a folder with a Hugging Face config.json.", examples=("glm-5.1",)
    )
    checkpoint: str | None = doc("Folder or hub id of the weights; absent: the model's own.", default=None)
    cluster: str = doc("Catalog name, or a path to a cluster file.", examples=("h200-28x8",))
    nodes: int | Auto = doc(
        "Nodes to use at most; auto: what the objective needs, up to the cluster.", default="auto", minimum=1
    )
    target: Literal["slurm", "local"] | Auto = doc("Launcher; auto: what the cluster has.", default="auto")
    objective: Objective = doc("What the plan is chosen for.", factory=lambda: Objective(minimize="step_time"))
    algorithm: Algorithm = doc("RL algorithm.")
    sequence: Sequence = doc("Lengths.")
    workload: Workload = doc("What a rollout looks like.")
    trainer: TrainerSpec = doc("Trainer.")
    inference: InferenceSpec = doc("Engines.", factory=InferenceSpec)
    slurm: SlurmSpec = doc("Batch job.", factory=SlurmSpec)
    runtime: Runtime = doc("Environment and run directory.", factory=Runtime)
    seed: int = doc("Seed of the run.", default=0)
    kernels: str = doc(
        "Coefficients of the forecast: auto (the catalog's for the GPU), a catalog name, or the path of a file that "
        "prlc calibrate wrote.",
        default="auto",
        examples=("kernels.yaml",),
    )
    prefer: tuple[Wish, ...] = doc(
        "Which wish wins where two that are left to auto exclude each other, first wins.",
        default=("router_replay", "disaggregate"),
    )
    strict: bool = doc("Warnings are errors.", default=False)
