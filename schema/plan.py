"""plan.json: what the compiler decided, with every reason. The bundle is a pure function of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import doc
from prlc.schema.orchestrator import OrchestratorConfig
from prlc.schema.preflight import PreflightConfig
from prlc.schema.topology import Topology
from prlc.schema.trainer import TrainerConfig


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One named part of a memory total."""

    what: str = doc("Name of the part, e.g. 'routed expert weights'.")
    phase: str = doc("When it is resident: always, or the phases that hold it, e.g. 'head, backward'.")
    bytes: int = doc("Bytes on the most loaded rank (or node).", minimum=0)
    formula: str = doc("The formula with its inputs filled in.")

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of its phases; ('always',) for what stays."""
        return tuple(self.phase.split(", "))


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Memory of one role and one resource. Parts of different phases replace each other, so the total is that of the
    fullest phase: the sum of `peak`."""

    role: str = doc("Role.")
    resource: Literal["hbm", "host", "nvme", "filesystem"] = doc(
        "hbm is per GPU; host and nvme per node; filesystem per run."
    )
    capacity: int = doc("Usable bytes; 0 where nobody stated them.", minimum=0)
    entries: tuple[LedgerEntry, ...] = doc("Its parts, of all phases.")
    band: tuple[float, float] = doc(
        "Measured over predicted, low and high, in the data that the ledger was calibrated on.", default=(1.0, 1.0)
    )

    @property
    def phases(self) -> dict[str, int]:
        """Bytes of each phase, what always stays included; {'always': bytes} without phases."""
        sums: dict[str, int] = {}
        always = 0
        for entry in self.entries:
            if entry.phase == "always":
                always += entry.bytes
            else:
                for name in entry.phases:
                    sums[name] = sums.get(name, 0) + entry.bytes
        return {name: always + size for name, size in sums.items()} or {"always": always}

    @property
    def peak_phase(self) -> str:
        """The fullest phase; the first of equals."""
        sums = self.phases
        return max(sums, key=lambda name: sums[name])

    @property
    def peak(self) -> tuple[LedgerEntry, ...]:
        """Entries of the fullest phase and those that always stay."""
        phase = self.peak_phase
        return tuple(e for e in self.entries if e.phase == "always" or phase in e.phases)

    @property
    def total(self) -> int:
        """Bytes of the fullest phase: the sum of `peak`."""
        return max(self.phases.values())


@dataclass(frozen=True, kw_only=True)
class Term:
    """One node of the forecast tree: a time (s) or rate with its formula, its source and its band."""

    name: str = doc("Name, e.g. 'trainer step'.")
    unit: str = doc("s, tokens/s, versions or 1.")
    low: float = doc("Low end of the band.")
    expected: float = doc("Expected value.")
    high: float = doc("High end of the band.")
    formula: str = doc("The formula with its inputs filled in.")
    source: str = doc("Catalog row or document that its rates come from.")
    extrapolated: bool = doc("True where the inputs lie outside the data.", default=False)
    terms: tuple[Term, ...] = doc("Parts.", default=())


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A value or layout that lost."""

    value: str = doc("What it is.")
    outcome: str = doc("Why it lost and by how much.")
    step: float | None = doc("Seconds of its step, of a whole layout.", default=None, minimum=0)
    gpus: int | None = doc("GPUs of a whole layout.", default=None, minimum=1)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One value that the compiler derived, rounded, overrode or was told to hold."""

    path: str = doc("Path in the spec, e.g. trainer.parallel.ep.")
    value: str = doc("What it became.")
    asked: str = doc("What the spec said: auto, a value, or (absent).")
    rule: str = doc("Rule or function that decided.")
    reason: str = doc("Why, in one line with numbers.")
    alternatives: tuple[Alternative, ...] = doc("What lost.", default=())


@dataclass(frozen=True, kw_only=True)
class Warning:
    """A diagnostic that does not stop the plan."""

    code: str = doc("PRLnnn.")
    message: str = doc("One line.")
    help: str = doc("The cure.", default="")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable of a role's script. {name} in the value is looked up in the role's tables."""

    name: str = doc("Name.", pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    value: str = doc("Value.")
    why: str = doc("Reason, printed as a comment.", default="")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A bash array of a role's script: one value a process, in index order."""

    name: str = doc("Upper-case name of the array.", pattern="^[A-Z][A-Z0-9_]*$")
    values: tuple[str, ...] = doc("One value a process.")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How one role is started: the whole of roles/<name>.sh and its srun step, decided.

    Values of `environment` and `command` may hold {TABLE}, replaced in the script by a lookup of that table at the
    process's index, and {BUNDLE}, {RUN_DIR}, {NODE_n} (address of node n), {INDEX}.
    """

    role: str = doc("Name of the role.")
    nodes: tuple[int, ...] = doc("Node indexes that it runs on, ascending.")
    tasks_per_node: int = doc("Processes (agents) on each of its nodes.", minimum=1)
    cpus_per_task: int = doc("CPU cores of a task.", minimum=1)
    deadline: int = doc("Seconds after which the step is ended; 0: never.", default=0, minimum=0)
    gpus_per_task: int = doc("GPUs of a task; 0 on a CPU.", minimum=0)
    tables: tuple[Table, ...] = doc("Arrays that differ by process.", default=())
    environment: tuple[Variable, ...] = doc("Environment variables.", default=())
    command: tuple[str, ...] = doc("Program and its fixed first words, e.g. vllm serve MODEL.")
    flags: tuple[tuple[str, ...], ...] = doc("Flags, one a line: (flag,) or (flag, value...).", default=())


@dataclass(frozen=True, kw_only=True)
class RoleSummary:
    """One row of the plan's table."""

    role: str = doc("Role.")
    nodes: str = doc("Node range, e.g. 0-11.")
    gpus: int = doc("GPUs.")
    layout: str = doc("Layout in the field's terms.")
    reason: str = doc("Main reason in one line.")


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """The model as the plan used it."""

    name: str = doc("Catalog name or folder name.")
    checkpoint: str = doc("Folder or Hugging Face id that engines and trainer load.")
    model_type: str = doc("Hugging Face model_type.")
    attention: str = doc("gqa, mla, dsa, ...")
    total_params: int = doc("Parameters of the main model.")
    active_params: int = doc("Parameters that one token uses.")
    layers: int = doc("Decoder layers.")
    moe_layers: int = doc("Layers with experts.")
    num_experts: int = doc("Routed experts a layer.")
    top_k: int = doc("Experts a token uses.")
    replay_bytes_per_token: int = doc("Router-replay payload of one token, the engine's layout.")


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    """The cluster as the plan used it."""

    name: str = doc("Catalog name or file name.")
    target: Literal["slurm", "local"] = doc("Which launcher the bundle is for.")
    nodes: int = doc("Nodes used.")
    gpus_per_node: int = doc("GPUs a node.")
    gpu: str = doc("GPU name, or 'cpu'.")


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """#SBATCH lines of run.sbatch."""

    options: tuple[tuple[str, str], ...] = doc("(name, value), e.g. (partition, gpu), in order.", default=())
    requeue: bool = doc("The job goes on by itself where another attempt can.", default=False)
    signal_seconds: int = doc("Seconds before the time limit at which the batch shell gets USR1.", default=120)
    step: tuple[str, ...] = doc("Options of every srun, e.g. --container-image=...", default=())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """plan.json."""

    format: Literal["prlc.plan/1"] = doc("Document format.", default="prlc.plan/1")
    compiler: str = doc("Version of the compiler.")
    name: str = doc("Name of the run.")
    spec_sha256: str = doc("sha256 of the spec's bytes.")
    spec_text: str = doc("The spec as written: becomes the bundle's spec.yaml.")
    model: ModelSummary = doc("Model.")
    cluster: ClusterSummary = doc("Cluster.")
    run_dir: str = doc("Run directory, from the spec.")
    environment_setup: str = doc(
        "Path of the venv (or image) that the job uses, from the spec; never changed by the job."
    )
    table: tuple[RoleSummary, ...] = doc("The layout in one table.")
    ledgers: tuple[Ledger, ...] = doc("Memory.")
    forecast: Term = doc("Time.")
    decisions: tuple[Decision, ...] = doc("Every value derived, with its reason.")
    warnings: tuple[Warning, ...] = doc("Warnings.", default=())
    alternatives: tuple[Alternative, ...] = doc("Whole layouts that lost, best first.", default=())
    topology: Topology = doc("config/topology.yaml.")
    trainer: TrainerConfig = doc("config/trainer.yaml.")
    orchestrator: OrchestratorConfig = doc("config/orchestrator.yaml.")
    launches: tuple[Launch, ...] = doc("How each role starts, in start order.")
    preflight: PreflightConfig | None = doc("config/preflight.yaml; absent: no preflight.", default=None)
    checks: tuple[Launch, ...] = doc("What runs and ends before the roles start, in order.", default=())
    slurm: SlurmOptions = doc("Options of the batch job.", factory=SlurmOptions)
