"""Coefficients from measurements: fit, leave-one-group-out residuals, bands, and the kernels file that a plan names."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from prlc.compiler.calibration.cases import cases
from prlc.compiler.calibration.fit import Prior, fit
from prlc.compiler.calibration.rows import Case, Row, Skipped, predicted
from prlc.compiler.forecast.rates import RUNTIME, rates_of
from prlc.schema import codec
from prlc.schema.kernels import Band, Coefficient, Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

HOPPER = ("h100", "h200")  # one set of coefficients: both run the same kernels at their own rates
OWN_SPREAD = 0.5  # how far the runtime's own coefficients may lie from those of like trainers
OTHER_GPU_SPREAD = 0.3  # how far another GPU's coefficients may lie from Hopper's
ENGINE = ("decode", "prefill", "prefill in a queue", "attention layer", "prefill throughput")
UNFITTED = ("exchange", "collective", "GEMM")  # tables and the catalog's rates: their rows are checks
# a first token also waits for the network, the tokenizer and other requests: such rows say less of the kernels
WEIGHTS = {"prefill": 0.5, "prefill in a queue": 0.1}
ROUNDS = 3  # features of queues and floors depend on the coefficients themselves
CONFIDENCE, Z95 = 0.9, 1.6449
BANDS = {  # band of a forecast -> quantities whose left-out rows it rests on
    "trainer": ("trainer",),
    "decode": ("decode",),
    "prefill": ("prefill", "attention layer"),
    "exchange": ("exchange",),
}


@dataclass(frozen=True)
class Outcome:
    """One case, predicted without its group and with it."""

    case: Case
    left_out: float  # s, by coefficients that did not see the group
    fitted: float  # s

    @property
    def error(self) -> float:
        """Relative error without the group."""
        return self.left_out / self.case.measured - 1

    @property
    def ratio(self) -> float:
        """Measured over predicted, without the group."""
        return self.case.measured / self.left_out


@dataclass(frozen=True)
class Prediction:
    """One row as shipped coefficients have it, in seconds; 0 to infinity where there is no band."""

    case: Case
    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class Calibration:
    """What a calibration found."""

    kernels: Kernels
    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...]
    covered: Mapping[str, float]  # band -> share of left-out rows inside the band of the other groups
    before: Mapping[str, float]  # quantity -> mean error of the prior alone, on the same rows


def calibrate(rows: Sequence[Row], prior: Kernels, gpu: str, name: str) -> Calibration:
    """Coefficients of `gpu` from rows, starting from `prior`; groups are architecture x software (x mode x GPU)."""
    outcomes: list[Outcome] = []
    engine = _fit_engine(rows, prior, outcomes)
    whole = _fit_trainer(rows, engine, gpu, outcomes)
    rates = rates_of(whole)
    found, skipped = cases(rows, rates)
    for case in found:
        if case.quantity in UNFITTED:
            value = sum(case.terms.values())
            outcomes.append(Outcome(case, value, value))
    kernels = dataclasses.replace(
        _with_residuals(whole, prior, outcomes),
        name=name,
        gpu=gpu,
        bands={**prior.bands, **{name: _band(name, used) for name, used in _by_band(outcomes).items() if used}},
    )
    covered = {name: coverage(used) for name, used in _by_band(outcomes).items() if used}
    return Calibration(kernels, tuple(outcomes), tuple(skipped), covered, _without_fit(rows, prior))


def predict(rows: Sequence[Row], kernels: Mapping[str, Kernels]) -> tuple[list[Prediction], list[Skipped]]:
    """Every row that can be priced, by the kernels of its GPU, whatever its `use`. Nothing is fitted."""
    found: list[Prediction] = []
    skipped: list[Skipped] = []
    uses = tuple({row["use"] for row in rows})
    for gpu, document in kernels.items():
        rates = rates_of(document)
        made, left = cases(rows, rates, uses)
        skipped = left
        for case in made:
            if case.gpu == gpu:
                fitted = case.quantity not in UNFITTED
                value = predicted(case.terms, rates) if fitted else sum(case.terms.values())
                name = next((n for n, of in BANDS.items() if case.quantity in of), None)
                band = document.bands[name] if name else None
                low, high = (value * band.low, value * band.high) if band else (0.0, math.inf)
                found.append(Prediction(case, value, low, high))
    return found, skipped


# --- fits


def priors(kernels: Kernels, rooms: Iterable[str], spread: float | None = None) -> dict[str, Prior]:
    """room.name -> prior; `spread` replaces that of every coefficient that is not held."""
    return {
        f"{room}.{name}": Prior(c.value, (spread if spread is not None else c.spread) if c.spread else 0.0)
        for room in rooms
        for name, c in getattr(kernels, room).items()
    }


def with_values(kernels: Kernels, values: Mapping[str, float]) -> Kernels:
    """The document with other values, by room.name."""
    rooms: dict[str, dict[str, Coefficient]] = {}
    for full, value in values.items():
        room, _, name = full.partition(".")
        held = rooms.setdefault(room, dict(getattr(kernels, room)))
        held[name] = dataclasses.replace(held[name], value=value)
    return dataclasses.replace(kernels, **rooms)  # type: ignore[arg-type]


def _fit(used: Sequence[Case], start: Mapping[str, Prior]) -> dict[str, float]:
    return fit([(c.terms, c.measured) for c in used], start, [WEIGHTS.get(c.quantity, 1.0) for c in used])


def _fit_engine(rows: Sequence[Row], prior: Kernels, outcomes: list[Outcome]) -> Kernels:
    start = priors(prior, ("decode", "prefill"))
    rows = [row for row in rows if row["phase"] in ("decode", "prefill", "kernel")]

    def settle(keep: Callable[[Case], bool]) -> tuple[Kernels, list[Case]]:
        kernels = prior
        for _ in range(ROUNDS):
            found = [c for c in cases(rows, rates_of(kernels), also=False)[0] if c.quantity in ENGINE]
            kernels = with_values(prior, _fit([c for c in found if keep(c)], start))
        return kernels, [c for c in cases(rows, rates_of(kernels), also=False)[0] if c.quantity in ENGINE]

    whole, found = settle(lambda case: True)
    rates = rates_of(whole)
    by_row = {case.row: predicted(case.terms, rates) for case in found}
    for group in sorted({case.group for case in found}):
        without, other = settle(lambda case, group=group: case.group != group)  # type: ignore[misc]
        outcomes += [
            Outcome(case, predicted(case.terms, rates_of(without)), by_row[case.row])
            for case in other
            if case.group == group
        ]
    return whole


def _fit_trainer(rows: Sequence[Row], kernels: Kernels, gpu: str, outcomes: list[Outcome]) -> Kernels:
    training = [row for row in rows if row["phase"] == "train"]
    found = [c for c in cases(training, rates_of(kernels))[0] if c.quantity == "trainer"]
    own = [c for c in found if c.group.startswith(f"{RUNTIME} ")]
    found = [c for c in found if not c.group.startswith(f"{RUNTIME} ")]
    hopper = _fit([c for c in found if c.gpu in HOPPER], priors(kernels, ("trainer",)))
    made = with_values(kernels, hopper)
    for gpus in (HOPPER, *((other,) for other in sorted({c.gpu for c in found} - set(HOPPER)))):
        used = [c for c in found if c.gpu in gpus]
        start = priors(kernels, ("trainer",)) if gpus == HOPPER else priors(made, ("trainer",), OTHER_GPU_SPREAD)
        whole = with_values(kernels, _fit(used, start))
        for group in sorted({case.group for case in used}):
            without = rates_of(with_values(kernels, _fit([c for c in used if c.group != group], start)))
            outcomes += [
                Outcome(c, predicted(c.terms, without), predicted(c.terms, rates_of(whole)))
                for c in used
                if c.group == group
            ]
        if gpu in gpus:
            made = whole
    return _with_runtime(made, own, outcomes)


def _with_runtime(kernels: Kernels, own: Sequence[Case], outcomes: list[Outcome]) -> Kernels:
    """The same with name@prlc beside each coefficient that the runtime's own rows move.

    Left out, the runtime's rows are predicted by the coefficients of like trainers.
    """
    if not own:
        return kernels
    values = _fit(own, priors(kernels, ("trainer",), OWN_SPREAD))
    before, after = rates_of(kernels), rates_of(with_values(kernels, values))
    outcomes += [Outcome(c, predicted(c.terms, before), predicted(c.terms, after)) for c in own]
    error = sum(abs(predicted(c.terms, after) / c.measured - 1) for c in own) / len(own)
    added = {}
    for name, held in kernels.trainer.items():
        value = values[f"trainer.{name}"]
        if "@" not in name and any(f"trainer.{name}" in c.terms for c in own) and value != held.value:
            source = f"fitted to {len(own)} rows of the runtime itself; like trainers: {held.value:.4g}"
            added[f"{name}@{RUNTIME}"] = Coefficient(
                value=float(f"{value:.5g}"), unit=held.unit, source=source, residual=round(error, 4)
            )
    return dataclasses.replace(kernels, trainer={**kernels.trainer, **added})


# --- what the residuals say


def product_rows(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those that bands rest on: Megatron-Bridge's rows between releases are no calibration rows."""
    return [o for o in outcomes if not (o.case.group.startswith("megatron") and o.case.gpu in HOPPER)]


def _by_band(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    used = product_rows(outcomes)
    return {name: [o for o in used if o.case.quantity in of] for name, of in BANDS.items()}


def quantiles(ratios: Sequence[float], groups: int) -> tuple[float, float]:
    """The CONFIDENCE interval of a ratio for a row of a new group.

    Order statistics of rank (n + 1) (1 -+ CONFIDENCE) / 2, in logarithms, stretched by Student's t over the normal
    quantile for `groups` - 1 degrees of freedom (z + (z^3 + z) / 4 nu): rows of one group share their error.
    """
    free = max(1, groups - 1)
    stretch = 1 + (Z95**2 + 1) / (4 * free)
    ordered = sorted(math.log(r) for r in ratios)
    n = len(ordered)
    rank = (n + 1) * (1 - CONFIDENCE) / 2 - 1

    def at(place: float) -> float:
        place = min(max(place, 0.0), n - 1.0)
        left = math.floor(place)
        right = min(left + 1, n - 1)
        return ordered[left] + (place - left) * (ordered[right] - ordered[left])

    return math.exp(stretch * min(0.0, at(rank))), math.exp(stretch * max(0.0, at(n - 1 - rank)))


def _band(name: str, used: Sequence[Outcome]) -> Band:
    low, high = quantiles([o.ratio for o in used], len({o.case.group for o in used}))
    return Band(
        low=round(low, 3),
        high=round(high, 3),
        error=round(sum(abs(o.error) for o in used) / len(used), 4),
        rows=len(used),
        source="left out by group: " + ", ".join(sorted({o.case.group for o in used})),
    )


def coverage(used: Sequence[Outcome]) -> float:
    """Share of rows inside the band that the other groups' rows give."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in used:
        groups[outcome.case.group].append(outcome)
    inside = 0
    for group, own in groups.items():
        others = [o for o in used if o.case.group != group] or own
        low, high = quantiles([o.ratio for o in others], len({o.case.group for o in others}))
        inside += sum(low <= o.ratio <= high for o in own)
    return inside / len(used)


def _without_fit(rows: Sequence[Row], prior: Kernels) -> dict[str, float]:
    rates = rates_of(prior)
    made = [Outcome(c, predicted(c.terms, rates), 0.0) for c in cases(rows, rates)[0] if c.quantity not in UNFITTED]
    errors: dict[str, list[float]] = defaultdict(list)
    for outcome in product_rows(made):
        errors[outcome.case.quantity].append(abs(outcome.error))
    return {quantity: sum(found) / len(found) for quantity, found in errors.items()}


def _with_residuals(kernels: Kernels, prior: Kernels, outcomes: Sequence[Outcome]) -> Kernels:
    """Fitted coefficients say what they rest on: the mean error of the rows that hold their term."""
    errors: dict[str, list[float]] = defaultdict(list)
    groups: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        for name in outcome.case.terms:
            errors[name].append(abs(outcome.fitted / outcome.case.measured - 1))
            groups[name].add(outcome.case.group)

    def room(name: str) -> dict[str, Coefficient]:
        made = {}
        for key, c in getattr(kernels, name).items():
            rest, full = getattr(prior, name).get(key, c), f"{name}.{key}"
            if c.spread and errors[full] and c.value != rest.value:
                seen = f"fitted to {len(errors[full])} rows of {len(groups[full])} groups"
                source = f"{seen}; before: {rest.value:.4g}, {rest.source}"
                c = dataclasses.replace(
                    c,
                    value=float(f"{c.value:.5g}"),
                    source=source,
                    residual=round(sum(errors[full]) / len(errors[full]), 4),
                )
            made[key] = c
        return made

    return dataclasses.replace(kernels, **{name: room(name) for name in ("trainer", "decode", "prefill")})  # type: ignore[arg-type]


def to_yaml(kernels: Kernels) -> str:
    """The document as `catalog.kernels` reads it."""
    return str(yaml.safe_dump(codec.encode(kernels), sort_keys=False, width=120, allow_unicode=True))
