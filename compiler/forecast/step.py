"""How long a step takes: max(trainer, rollouts) + exposed weight sync, as a tree of named terms with bands.

Coefficients and bands come from a kernels file (catalog/kernels, or the one that the spec names); the formulas are
those of docs/methods/time.md. `score` is the arithmetic alone, `forecast` the same with its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast.engine import EngineTime, engine_time
from prlc.compiler.forecast.loop import Lag, Work, drop_rate, inflight_rollouts, lag, work
from prlc.compiler.forecast.rates import Rates, of
from prlc.compiler.forecast.sync import SyncTime, exposed, sync_time
from prlc.compiler.forecast.trainer import TrainerTime, trainer_time
from prlc.compiler.ledger.engine import kv_token_bytes

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout, Layout, TrainerLayout
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.plan import Term
    from prlc.schema.run import RunSpec

STORE_SHARE = 0.5  # of an engine node's memory, as the layout's store


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The arithmetic of a step, in seconds, versions and shares."""

    rates: Rates
    load: Work
    trainer: TrainerTime
    engine: EngineTime
    in_flight: int
    lag: Lag
    dropped: float
    rollouts: float
    write: float  # of one policy version by the trainer
    pause: float  # of the engines that read it
    sync: float  # what shows of both

    @property
    def seconds(self) -> float:
        """Expected step time."""
        return max(self.trainer.seconds, self.rollouts) + self.sync

    @property
    def trainer_idle(self) -> float:
        """Share of a step in which the trainer waits for rollouts or for its policy to be read."""
        return 1 - self.trainer.seconds / self.seconds

    @property
    def engines_idle(self) -> float:
        """Share of a step in which engines have made their batch and wait, or stand still for new weights."""
        return 1 - self.rollouts / self.seconds


def trainer_seconds(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, mesh: TrainerLayout) -> float:
    """Seconds of one optimizer step on `mesh`."""
    return trainer_time(spec, facts, gpu, cluster, of(spec.kernels, gpu), mesh, work(spec)).seconds


def rollout_seconds(
    spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, engines: tuple[EngineLayout, ...]
) -> float:
    """Seconds in which `engines` supply one batch of rollouts, those included that are dropped for their age."""
    return _rollouts(spec, facts, gpu, cluster, engines, inflight_rollouts(spec), work(spec))[1]


def rollout_times(
    spec: RunSpec,
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    engines: tuple[EngineLayout, ...],
    in_flight: int,
    rates: Rates,
) -> float:
    """`rollout_seconds` with other coefficients and another number in flight."""
    return _rollouts(spec, facts, gpu, cluster, engines, in_flight, work(spec), rates)[1]


def exposed_sync(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> float:
    """Seconds a step of the weight update that no work hides."""
    return step_time(spec, facts, gpu, cluster, layout).sync


def score(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> float:
    """Expected seconds of a step: what `forecast` says, without its words."""
    return step_time(spec, facts, gpu, cluster, layout).seconds


def step_time(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> StepTime:
    """All numbers of one step."""
    algorithm, load, rates = spec.algorithm, work(spec), of(spec.kernels, gpu)
    in_flight = layout.max_inflight_groups * algorithm.group_size
    engine, rollouts = _rollouts(spec, facts, gpu, cluster, layout.engines, in_flight, load)
    trainer = trainer_time(spec, facts, gpu, cluster, rates, layout.trainer, load)
    sync: SyncTime = sync_time(spec, facts, gpu, rates, layout)
    return StepTime(
        rates=rates,
        load=load,
        trainer=trainer,
        engine=engine,
        in_flight=in_flight,
        lag=lag(in_flight, algorithm.batch_size, algorithm.max_off_policy_steps, load.sigma),
        dropped=_dropped(spec, in_flight, load),
        rollouts=rollouts,
        write=sync.write,
        pause=sync.pause,
        sync=exposed(spec, sync, trainer.seconds, rollouts),
    )


def forecast(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> Term:
    """The step as a tree: trainer step, rollouts and weight sync make it; what follows them informs."""
    from prlc.compiler.forecast.tree import tree

    return tree(spec, facts, gpu, cluster, layout, step_time(spec, facts, gpu, cluster, layout))


def needed_groups(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> int:
    """Fewest groups in flight, not below one batch, that still keep the trainer busy; all, where it must wait anyway.

    More than the trainer needs only makes rollouts older. What the spec holds is kept.
    """
    most, size = layout.max_inflight_groups, spec.algorithm.group_size
    least = max(1, spec.algorithm.batch_size // size)
    if spec.algorithm.max_inflight_groups != "auto" or least >= most:
        return most
    load, rates = work(spec), of(spec.kernels, gpu)
    trainer = trainer_time(spec, facts, gpu, cluster, rates, layout.trainer, load).seconds

    def enough(groups: int) -> bool:
        return _rollouts(spec, facts, gpu, cluster, layout.engines, groups * size, load)[1] <= trainer

    if not enough(most):
        return most
    high = most
    while least < high:
        middle = (least + high) // 2
        if enough(middle):
            high = middle
        else:
            least = middle + 1
    return high


def _dropped(spec: RunSpec, in_flight: int, load: Work) -> float:
    algorithm = spec.algorithm
    return drop_rate(in_flight, algorithm.batch_size, algorithm.max_off_policy_steps, load.sigma)


def _rollouts(
    spec: RunSpec,
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    engines: tuple[EngineLayout, ...],
    in_flight: int,
    load: Work,
    rates: Rates | None = None,
) -> tuple[EngineTime, float]:
    asked, replay = spec.inference.kv_offload, spec.algorithm.router_replay
    # what the solver decides: apart engines with replay hand KV over through the store
    stored = asked == "mooncake" or (asked == "auto" and len(engines) > 1 and bool(facts.num_experts and replay))
    precision, kept = spec.inference.precision, 0.0
    if stored:
        nodes = len({n for e in engines for n in e.nodes})
        row = kv_token_bytes(facts, engines[0], precision) * engines[0].tp
        kept = nodes * cluster.node.memory * STORE_SHARE / row
    rates = rates or of(spec.kernels, gpu)
    found = engine_time(facts, gpu, cluster, rates, engines, precision, load, in_flight, kept)
    supply = found.rollouts_per_second * max(0.01, 1 - _dropped(spec, in_flight, load))
    return found, spec.algorithm.batch_size / supply
