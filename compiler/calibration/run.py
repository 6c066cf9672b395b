"""Coefficients from a finished run: its own step, publication and rollout times against what its plan said.

The run's files hold times of whole steps, so they scale what the plan's coefficients say: one factor for the trainer,
one for the engines, and the rate at which policies were written. Shapes stay those of the fit to measurements.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prlc.compiler.calibration.calibrate import quantiles
from prlc.compiler.forecast.rates import of, rates_of
from prlc.compiler.forecast.step import rollout_times, step_time
from prlc.compiler.forecast.sync import PUBLISHED_WIDTH
from prlc.schema.kernels import Band, Coefficient, Kernels

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved

WARM_UP = 2  # steps that compile kernels and fill queues
LEAST_STEPS = 3
NOT_TIMES = ("imbalance", "expert_balance", "acceptance", "acceptance_fall")  # ratios and shares: no factor
SEARCH = (0.02, 50.0)  # factors of the engines that are looked for


class NoMeasurement(ValueError):
    """Why a run says nothing."""


@dataclass(frozen=True)
class RunTimes:
    """Seconds of the steps of a run after its warm-up, and what the trainer did in them."""

    step: tuple[float, ...]  # forward, backward and optimizer
    wait: tuple[float, ...]  # for a batch
    publish: tuple[float, ...]

    @property
    def period(self) -> tuple[float, ...]:
        """From batch to batch."""
        return tuple(s + w + p for s, w, p in zip(self.step, self.wait, self.publish, strict=True))


@dataclass(frozen=True)
class RunCalibration:
    """The kernels and the factors that made them: measured over planned."""

    kernels: Kernels
    steps: int
    trainer: float
    engine: float | None  # None: the trainer never waited, so the engines' own time is unknown
    filesystem: float  # bytes/s of a trainer node


def read_run(folder: Path) -> RunTimes:
    """metrics/trainer-0.jsonl of a run folder; of a repeated step the last line counts. Raises NoMeasurement."""
    path = folder / "metrics" / "trainer-0.jsonl"
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise NoMeasurement(f"{path} cannot be read: {error}") from error
    steps: dict[int, Mapping[str, float]] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # torn by a crash
        if isinstance(record, dict) and {"step", "step_seconds", "wait_seconds", "publish_seconds"} <= record.keys():
            steps[int(record["step"])] = record
    used = [steps[step] for step in sorted(steps)[WARM_UP:]]
    if len(used) < LEAST_STEPS:
        raise NoMeasurement(
            f"{path} has {len(steps)} steps; {WARM_UP + LEAST_STEPS} are needed, the first {WARM_UP} warm up"
        )
    return RunTimes(*(tuple(float(r[f"{name}_seconds"]) for r in used) for name in ("step", "wait", "publish")))


def from_run(times: RunTimes, resolved: Resolved, layout: Layout, name: str) -> RunCalibration:
    """Kernels of the spec's, scaled so that the forecast of this layout gives the run's medians."""
    spec, facts, gpu, cluster = resolved.spec, resolved.facts, resolved.gpu, resolved.cluster
    document = of(spec.kernels, gpu).document
    planned = step_time(spec, facts, gpu, cluster, layout)
    measured = statistics.median(times.step)
    trainer = measured / planned.trainer.seconds
    made = _scaled(document, ("trainer",), trainer, f"{len(times.step)} steps of run {spec.name}")
    size = facts.total_params * PUBLISHED_WIDTH[spec.inference.precision]
    publish = statistics.median(times.publish)
    filesystem = size / publish / len(layout.trainer.nodes)
    written = Coefficient(
        value=float(f"{filesystem:.4g}"), unit="bytes/s", source=f"a node that publishes; median of run {spec.name}"
    )
    made = dataclasses.replace(made, network={**made.network, "filesystem_write": written})
    engine = None
    if statistics.median(times.wait) > 0.05 * statistics.median(times.period):
        engine = _engine_factor(statistics.median(times.period), made, resolved, layout)
        if engine is not None:
            made = _scaled(made, ("decode", "prefill"), engine, f"step period of run {spec.name}")
    low, high = quantiles([t / measured for t in times.step], 1)
    band = Band(low=round(low, 3), high=round(high, 3), error=_spread(times.step), rows=len(times.step),
                source=f"steps of run {spec.name}")  # fmt: skip
    kernels = dataclasses.replace(
        made,
        name=name,
        bands={**made.bands, "trainer": band},
        software={**made.software, "trainer": f"run {spec.name}; before: {made.software['trainer']}"},
    )
    return RunCalibration(kernels, len(times.step), trainer, engine, filesystem)


def _spread(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return round(statistics.mean(abs(v / middle - 1) for v in values), 4)


def _scaled(kernels: Kernels, rooms: tuple[str, ...], factor: float, source: str) -> Kernels:
    def one(name: str, c: Coefficient) -> Coefficient:
        if name in NOT_TIMES or c.value == 0:
            return c
        return dataclasses.replace(
            c, value=float(f"{c.value * factor:.5g}"), source=f"{factor:.3g} x by {source}; before: {c.source}"
        )

    changed = {room: {name: one(name, c) for name, c in getattr(kernels, room).items()} for room in rooms}
    return dataclasses.replace(kernels, **changed)  # type: ignore[arg-type]


def _engine_factor(period: float, kernels: Kernels, resolved: Resolved, layout: Layout) -> float | None:
    """The factor with which the rollouts' forecast gives the run's period. None: no factor within SEARCH does."""

    def seconds(factor: float) -> float:
        rates = rates_of(_scaled(kernels, ("decode", "prefill"), factor, ""))
        return rollout_times(
            resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout.engines,
            layout.max_inflight_groups * resolved.spec.algorithm.group_size, rates,
        )  # fmt: skip

    low, high = SEARCH
    if not seconds(low) <= period <= seconds(high):
        return None
    for _ in range(40):
        middle = math.sqrt(low * high)
        if seconds(middle) < period:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
