"""How long a step takes: max(trainer, rollouts) + exposed weight sync, as a tree of named terms with bands.

No run has calibrated the whole: each band states what it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast_engine import EngineTime, engine_time
from prlc.compiler.forecast_loop import drop_rate, inflight_rollouts, mean_lag, work
from prlc.compiler.forecast_trainer import TrainerTime, trainer_time
from prlc.schema.plan import Term

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout, Layout, TrainerLayout
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.run import RunSpec

BAND = 0.25  # not calibrated against a whole run
SYNC_BAND = 0.5  # one measured filesystem, at one node
FILESYSTEM_RATE = 1.6e9  # bytes/s a node that publishes: 37 s for the 61 GB of Qwen3-30B-A3B (prime-rl baselines)
READ_RATE = 5e9  # bytes/s a node that reads it; an assumption
CPU_PAUSE = 0.1  # seconds; an assumption
UPDATE_PAUSE = 1.0  # seconds that pausing, processing and resuming an engine takes beside reading; an assumption
PUBLISHED_WIDTH = {"fp32": 4, "bf16": 2, "fp8": 2}  # bytes a parameter: fp8 engines quantize on load


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The arithmetic of a step, in seconds, versions and shares; `forecast` puts words to it."""

    trainer: TrainerTime
    engine: EngineTime
    in_flight: int
    lag: float
    dropped: float
    rollouts: float
    write: float  # of one policy version by the trainer
    pause: float  # of the engines that read it
    sync: float  # what shows of both

    @property
    def seconds(self) -> float:
        """Expected step time."""
        return max(self.trainer.seconds, self.rollouts) + self.sync


def trainer_seconds(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, mesh: TrainerLayout) -> float:
    """Seconds of one optimizer step on `mesh`."""
    return trainer_time(spec, facts, gpu, cluster, mesh).seconds


def rollout_seconds(
    spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, engines: tuple[EngineLayout, ...]
) -> float:
    """Seconds in which `engines` supply one batch of rollouts, those included that are dropped for their age."""
    return _rollouts(spec, facts, gpu, engines, inflight_rollouts(spec))[1]


def exposed_sync(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> float:
    """Seconds a step of the weight update that no work hides: see `_exposed`."""
    return step_time(spec, facts, gpu, cluster, layout).sync


def _sync_parts(spec: RunSpec, facts: ModelFacts, gpu: Gpu, layout: Layout) -> tuple[float, float]:
    """Seconds in which (the trainer writes, the engines stop and read) a policy version."""
    size = facts.total_params * PUBLISHED_WIDTH[spec.inference.precision]
    write = size / (FILESYSTEM_RATE * len(layout.trainer.nodes))
    # a node's page cache serves its other servers; nodes read side by side
    read = size / (READ_RATE * max(1, len({n for e in layout.engines for n in e.nodes})))
    return write, read + (UPDATE_PAUSE if gpu.device == "cuda" else CPU_PAUSE)


def _exposed(spec: RunSpec, write: float, pause: float, trainer: float, rollouts: float) -> float:
    """The engines' stop, and what the trainer still writes when the next batch is there.

    With a lag bound of 0 nothing is generated while the trainer writes, so all of it shows.
    """
    slack = max(0.0, rollouts - trainer) if spec.algorithm.max_off_policy_steps else 0.0
    return pause + max(0.0, write - slack)


def score(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> float:
    """Expected seconds of a step: what `forecast` says, without its words."""
    return step_time(spec, facts, gpu, cluster, layout).seconds


def step_time(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> StepTime:
    """All numbers of one step."""
    algorithm = spec.algorithm
    in_flight = layout.max_inflight_groups * algorithm.group_size
    engine, rollouts = _rollouts(spec, facts, gpu, layout.engines, in_flight)
    trainer = trainer_time(spec, facts, gpu, cluster, layout.trainer)
    write, pause = _sync_parts(spec, facts, gpu, layout)
    return StepTime(
        trainer=trainer,
        engine=engine,
        in_flight=in_flight,
        lag=mean_lag(in_flight, algorithm.batch_size, algorithm.max_off_policy_steps),
        dropped=_dropped(spec, in_flight),
        rollouts=rollouts,
        write=write,
        pause=pause,
        sync=_exposed(spec, write, pause, trainer.seconds, rollouts),
    )


def _dropped(spec: RunSpec, in_flight: int) -> float:
    algorithm = spec.algorithm
    return drop_rate(in_flight, algorithm.batch_size, algorithm.max_off_policy_steps, work(spec).sigma)


def _rollouts(
    spec: RunSpec, facts: ModelFacts, gpu: Gpu, engines: tuple[EngineLayout, ...], in_flight: int
) -> tuple[EngineTime, float]:
    asked, replay = spec.inference.kv_offload, spec.algorithm.router_replay
    # what solve decides: apart engines with replay hand KV over through the store
    stored = asked == "mooncake" or (asked == "auto" and len(engines) > 1 and bool(facts.num_experts and replay))
    found = engine_time(facts, gpu, engines, spec.inference.precision, work(spec), in_flight, stored)
    kept = found.rollouts_per_second * max(0.01, 1 - _dropped(spec, in_flight))
    return found, spec.algorithm.batch_size / kept


def _term(
    name: str,
    value: float,
    formula: str,
    source: str,
    unit: str = "s",
    band: float = BAND,
    extrapolated: bool = False,
    terms: tuple[Term, ...] = (),
) -> Term:
    basis = f"band +-{band:.0%}, not calibrated" if band else "a choice, no band"
    return Term(
        name=name,
        unit=unit,
        low=value * (1 - band),
        expected=value,
        high=value * (1 + band),
        formula=formula,
        source=f"{source}; {basis}",
        extrapolated=extrapolated,
        terms=terms,
    )


def forecast(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> Term:
    """The step as a tree: trainer step, rollouts and weight sync make it; lag, dropped and in flight inform."""
    t = step_time(spec, facts, gpu, cluster, layout)
    batch, bound = spec.algorithm.batch_size, spec.algorithm.max_off_policy_steps
    trainer = _trainer_term(t.trainer, facts, gpu, cluster, layout.trainer)
    rollouts = _rollouts_term(spec, t, gpu)
    sync = _sync_term(spec, t, facts, layout)
    sigma = work(spec).sigma
    informative = (
        _term(
            "lag", t.lag, f"min(bound {bound}, in flight {t.in_flight} / batch {batch} + 0.8)",
            "Little's law in version units", "versions",
        ),
        _term(
            "dropped", t.dropped,
            f"Q((ln(K {bound} x B {batch} / N {t.in_flight}) + s^2/2) / s), s {sigma:.2f}",
            "lognormal durations, a discrete-event simulation agrees within 1 point", "1",
        ),
        _term(
            "in-flight groups", layout.max_inflight_groups,
            f"{layout.max_inflight_groups} groups of {spec.algorithm.group_size}; "
            f"{t.engine.in_flight:.0f} rollouts fit into the KV pools at once",
            "layout", "groups", band=0.0,
        ),
    )  # fmt: skip
    parts = (trainer, rollouts, sync)
    return Term(
        name="step",
        unit="s",
        low=max(trainer.low, rollouts.low) + sync.low,
        expected=t.seconds,
        high=max(trainer.high, rollouts.high) + sync.high,
        formula=f"max(trainer {trainer.expected:.4g}, rollouts {rollouts.expected:.4g}) + sync {sync.expected:.4g}",
        source="its parts; the band joins theirs",
        extrapolated=any(part.extrapolated for part in parts),
        terms=(*parts, *informative),
    )


def _trainer_term(t: TrainerTime, facts: ModelFacts, gpu: Gpu, cluster: Cluster, mesh: TrainerLayout) -> Term:
    row = f"catalog GPU {gpu.name}"
    where = "inter" if len(mesh.nodes) > 1 else "intra"
    terms = (
        _term("GEMM", t.gemm, f"{t.tokens:.0f} tokens a rank x {facts.active_params} active params x 2 FLOP x passes "
              f"({mesh.activation_checkpoint} recompute) at GEMM, grouped and memory-bound rates", row),
        _term("attention", t.attention, f"{t.tokens:.0f} tokens a rank, causal, at {gpu.attention:.4g} FLOP/s", row),
        _term("expert all-to-all", t.all_to_all, f"{facts.moe_layers} layers x {t.tokens:.0f} tokens, ep {mesh.ep}",
              "DeepEP normal kernels on H200, 4096 tokens of 7168", extrapolated=t.extrapolated),
        _term("FSDP traffic", t.fsdp, f"{t.micro_batches} micro-batches x (2 gathers + 1 reduce-scatter) of "
              f"{facts.total_params} params at ep {mesh.ep}, {where}-node rate", f"catalog cluster {cluster.name}"),
        _term("optimizer", t.optimizer, f"{facts.total_params} params / {mesh.dp_shard * mesh.cp} x 28 B, "
              f"offload {mesh.offload}", row + ", host rate assumed"),
    )  # fmt: skip
    return _term(
        "trainer step",
        t.seconds,
        f"max(GEMM {t.gemm:.4g} + attention {t.attention:.4g} + all-to-all {t.all_to_all:.4g}, "
        f"FSDP {t.fsdp:.4g}) + optimizer {t.optimizer:.4g}",
        row,
        extrapolated=t.extrapolated,
        terms=terms,
    )


def _rollouts_term(spec: RunSpec, t: StepTime, gpu: Gpu) -> Term:
    e, load, row = t.engine, work(spec), f"catalog GPU {gpu.name}"
    terms = (
        _term("decode step", e.decode_step, f"{e.batch:.1f} sequences a server of {load.context:.0f} cached tokens: "
              "weights and KV read, all-to-all, gaps", f"{row}; vLLM wide-EP and DeepEP low-latency figures",
              extrapolated=e.extrapolated),
        _term("prefill of a turn", e.prefill_turn, f"{load.prefill:.0f} new tokens + {1 - e.prefix_hit:.0%} of "
              f"{load.prefix:.0f} before; its servers are busy {e.prefill_use:.0%}",
              f"{row}; llm-d GLM agentic figures for the floor",
              extrapolated=e.extrapolated),
        _term("tool time of a turn", load.tool, "workload.tool_time", "run spec", band=0.0),
    )  # fmt: skip
    return _term(
        "rollouts",
        t.rollouts,
        f"batch {spec.algorithm.batch_size} / ({e.turns_per_second:.4g} turns/s / {load.turns:.3g} turns x "
        f"(1 - dropped {t.dropped:.4g})) with {e.in_flight:.0f} in flight",
        "closed network of decode, prefill and tools",
        extrapolated=e.extrapolated,
        terms=terms,
    )


def _sync_term(spec: RunSpec, t: StepTime, facts: ModelFacts, layout: Layout) -> Term:
    width = PUBLISHED_WIDTH[spec.inference.precision]
    nodes = len(layout.trainer.nodes)
    readers = len({n for e in layout.engines for n in e.nodes})
    return _term(
        "weight sync",
        t.sync,
        f"{facts.total_params} params x {width} B: pause {t.pause:.4g} of engines that read on {readers} nodes "
        f"at 5 GB/s + write {t.write:.4g} by {nodes} nodes at 1.6 GB/s less what rollouts hide",
        "prime-rl baselines, filesystem broadcast of one node",
        band=SYNC_BAND,
        extrapolated=nodes > 1 or readers > 1,
    )
