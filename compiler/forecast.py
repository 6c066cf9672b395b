"""The forecast as a tree of named terms: a step, what it is made of, the lag and what is dropped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prlc.compiler import forecast_trainer as train
from prlc.compiler.forecast_engine import all_to_all_seconds, rollout_parts, rollout_seconds
from prlc.compiler.forecast_trainer import sync_seconds, trainer_seconds
from prlc.schema.plan import Term

if TYPE_CHECKING:
    from prlc.catalog import Cluster, Gpu, ModelFacts
    from prlc.compiler.layout import Layout
    from prlc.schema.run import RunSpec

__all__ = ["dropped_share", "exposed_sync", "forecast", "rollout_seconds", "trainer_seconds"]

# Not calibrated yet: the band says so. Serving planners miss by 30 to 50 % on such runs (published comparisons).
LOW, HIGH = 0.6, 1.8
QUEUE_LAG = 0.8
SIGMA = 1.0  # of a log-normal rollout duration where the spec gives no tail


def exposed_sync(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> float:
    """Seconds of a weight update that no work hides: generation pauses while engines read the policy."""
    return sync_seconds(spec, facts, layout)


def dropped_share(bound: int, batch: int, inflight: int, sigma: float) -> float:
    """Share of rollouts older than the bound: Q((ln(K B / N) + s^2 / 2) / s), log-normal durations of sigma s.

    >>> round(dropped_share(8, 1, 4, 1.0), 3)
    0.117
    """
    if bound == 0:
        return 1.0
    x = (math.log(bound * batch / inflight) + sigma**2 / 2) / sigma
    return 0.5 * math.erfc(x / math.sqrt(2))


def _term(
    name: str,
    unit: str,
    value: float,
    formula: str,
    source: str,
    parts: tuple[Term, ...] = (),
    far: bool = False,
) -> Term:
    return Term(
        name=name,
        unit=unit,
        low=value * LOW,
        expected=value,
        high=value * HIGH,
        formula=formula,
        source=source,
        extrapolated=far,
        terms=parts,
    )


def forecast(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout) -> Term:
    """Root `step` in seconds. The band is wide and the same for all terms until it is calibrated."""
    mesh, rates = layout.trainer, f"catalog gpus/{gpu.name}, clusters/{cluster.name}"
    compute = train.compute_seconds(spec, facts, gpu, mesh)
    parts = (
        _term("compute", "s", compute, "FLOPs of forward, recompute, backward / achieved rate", rates),
        _term(
            "fsdp",
            "s",
            train.fsdp_seconds(spec, facts, cluster, mesh),
            f"{train.micro_batches(spec, mesh)} micro-batches x (2 gathers bf16 + 1 scatter fp32)",
            rates,
        ),
        _term(
            "expert all-to-all",
            "s",
            train.expert_seconds(spec, facts, cluster, mesh),
            f"routed tokens over ep {mesh.ep}",
            rates,
        ),
        _term(
            "context gathers",
            "s",
            train.context_seconds(spec, facts, cluster, mesh),
            f"keys and values over cp {mesh.cp}",
            rates,
        ),
        _term(
            "optimizer",
            "s",
            train.optimizer_seconds(facts, cluster, gpu, mesh),
            f"28 B a parameter, state on {'cpu' if mesh.offload == 'cpu' else 'device'}",
            rates,
        ),
    )
    trainer = trainer_seconds(spec, facts, gpu, cluster, mesh)
    rollout = rollout_parts(spec, facts, gpu, cluster, layout.engines)
    far = all_to_all_seconds(layout.engines[-1], facts)[1]
    sync = exposed_sync(spec, facts, gpu, cluster, layout)
    step = max(trainer, rollout["all"]) + sync
    batch = spec.algorithm.batch_size
    inflight = layout.max_inflight_groups * spec.algorithm.group_size
    lag = inflight / batch + QUEUE_LAG
    turns = spec.workload.turns
    sigma = math.log(turns.p95 / turns.mean) / 1.645 if turns.p95 and turns.p95 > turns.mean else SIGMA
    share = dropped_share(spec.algorithm.max_off_policy_steps, batch, inflight, max(0.2, sigma))
    return _term(
        "step",
        "s",
        step,
        "max(trainer, rollouts) + weight sync",
        "sum of its parts",
        (
            _term("trainer", "s", trainer, "max(compute, fsdp) + the rest", rates, parts),
            _term(
                "rollouts",
                "s",
                rollout["all"],
                "prefill and decode side by side" if len(layout.engines) > 1 else "prefill + decode",
                rates,
                (
                    _term("prefill", "s", rollout["prefill"], "uncached tokens / prefill rate", rates),
                    _term(
                        "decode",
                        "s",
                        rollout["decode"],
                        "tokens / sequences at once x step",
                        "DeepEP on H200",
                        far=far,
                    ),
                ),
                far=far,
            ),
            _term(
                "weight sync",
                "s",
                sync,
                "published bytes / 1.6 GB/s of the shared filesystem",
                "prime-rl baselines",
            ),
            _term("lag", "versions", lag, f"in flight {inflight} / batch {batch} + {QUEUE_LAG}", "Little's law"),
            _term(
                "dropped",
                "1",
                share,
                f"Q((ln(K x batch / in flight) + s^2/2) / s), K {spec.algorithm.max_off_policy_steps}, s {sigma:.2f}",
                "log-normal durations",
            ),
        ),
        far=far,
    )
