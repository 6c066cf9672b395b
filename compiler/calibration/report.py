"""What a calibration found, as text and as benchmarks/forecast.md."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prlc.compiler.calibration.calibrate import BANDS, Calibration, Outcome, Prediction, product_rows

if TYPE_CHECKING:
    from prlc.compiler.calibration.run import RunCalibration

TARGETS = {"trainer": 0.15, "decode": 0.20}  # mean error that is aimed at
BARS = (  # what other planners reach, each with who says so
    ("time between tokens", "aiconfigurator 0.12.0", "53 % mean, 31 % median",
     "133 H200 rows that its own wheel ships, its code run on them"),
    ("first token", "aiconfigurator 0.12.0", "68 % mean, 54 % median", "the same rows"),
    ("training step", "SimuMax 1.2", "5.6 % mean, -13.5 to +0.1 %", "its own table, B200, Megatron, equal experts"),
    ("training step", "Calculon", "3.65 % mean, 8.9 % worst", "its own validation, A100, dense Megatron"),
    ("end to end, between tokens", "BLIS (llm-d simulator)", "7 to 9 % median", "its documentation, 8B to 141B"),
    ("latency", "Vidur", "below 9 %", "its paper, dense models of 2023"),
    ("noise", "one Megatron-Bridge configuration between releases", "6 %", "Qwen3-235B on 256 H100"),
)  # fmt: skip


def mean_error(outcomes: Iterable[Outcome]) -> float:
    """Mean absolute relative error of left-out predictions."""
    return statistics.mean(abs(o.error) for o in outcomes)


def by_group(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """(quantity, group) -> its outcomes, sorted."""
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.case.quantity, outcome.case.group].append(outcome)
    return dict(sorted(found.items()))


def text(found: Calibration) -> str:
    """Residuals by group, bands and the rows that were not priced."""
    lines = [f"{'quantity':<20} {'group left out':<46} {'rows':>4} {'error':>7} {'bias':>7}   fitted"]
    for (quantity, group), own in by_group(found.outcomes).items():
        bias = statistics.mean(o.error for o in own)
        fitted = statistics.mean(abs(o.fitted / o.case.measured - 1) for o in own)
        lines.append(f"{quantity:<20} {group:<46} {len(own):>4} {mean_error(own):>6.1%} {bias:>+6.1%}  {fitted:>6.1%}")
    lines.append("")
    for name, band in found.kernels.bands.items():
        if band.rows and name in found.covered:
            lines.append(
                f"band {name:<10} measured / predicted {band.low:.2f} to {band.high:.2f}, mean error {band.error:.1%}, "
                f"holds {found.covered[name]:.0%} of left-out rows"
            )
    reasons = Counter(s.reason for s in found.skipped)
    lines += ["", f"{sum(reasons.values())} rows without a prediction:"]
    lines += [f"  {count:>4}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


def run_text(found: RunCalibration) -> str:
    """The factors of a run."""
    engine = "unknown: the trainer hardly waited" if found.engine is None else f"{found.engine:.3g} x planned"
    return (
        f"{found.steps} steps after warm-up\ntrainer step   {found.trainer:.3g} x planned\nengines        {engine}\n"
        f"filesystem     {found.filesystem / 1e9:.3g} GB/s a trainer node\n"
    )


def markdown(found: Calibration) -> str:
    """benchmarks/forecast.md."""
    scored = product_rows(found.outcomes)
    lines = [
        "# Accuracy of the forecast",
        "",
        "Made by `python benchmarks/forecast.py`; tests hold the errors to the thresholds below. Each row is predicted",
        "by coefficients that were fitted without its group (architecture x software, for training also mode and GPU).",
        "Rows: `benchmarks/data/measurements.csv`, public measurements, each with its source, `calibrate` rows alone;",
        "and `own.csv`, the runtime's trainer on one H200, measured after the formulas and their priors stood.",
        "",
        "| quantity | rows | groups | mean error | median | prior alone | 90 % band, measured / predicted | inside |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for quantity in sorted({o.case.quantity for o in scored}):
        own = [o for o in scored if o.case.quantity == quantity]
        name = next((n for n, of in BANDS.items() if quantity in of), "")
        band = found.kernels.bands.get(name)
        shown = f"{band.low:.2f} to {band.high:.2f}" if band else "none"
        inside = f"{found.covered[name]:.0%}" if name in found.covered else ""
        before = f"{found.before[quantity]:.1%}" if quantity in found.before else ""
        lines.append(
            f"| {quantity} | {len(own)} | {len({o.case.group for o in own})} | {mean_error(own):.1%} | "
            f"{statistics.median(abs(o.error) for o in own):.1%} | {before} | {shown} | {inside} |"
        )
    lines += ["", "## By group", "", "| quantity | group left out | rows | mean error | bias | in the fit |",
              "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for (quantity, group), own in by_group(found.outcomes).items():
        bias = statistics.mean(o.error for o in own)
        fitted = statistics.mean(abs(o.fitted / o.case.measured - 1) for o in own)
        lines.append(f"| {quantity} | {group} | {len(own)} | {mean_error(own):.1%} | {bias:+.1%} | {fitted:.1%} |")
    lines += ["", "Groups of Megatron-Bridge on H100 rest on rows that show its spread between releases; they are",
              "shown here and count in no band.", "", "## What others reach", "",
              "| quantity | tool | error | who says so |", "| --- | --- | --- | --- |"]  # fmt: skip
    lines += [f"| {quantity} | {tool} | {error} | {source} |" for quantity, tool, error, source in BARS]
    lines += ["", "## Rows without a prediction", "", "| rows | why |", "| --- | --- |"]
    lines += [f"| {n} | {why} |" for why, n in Counter(s.reason for s in found.skipped).most_common()]
    return "\n".join(lines) + "\n"


def predictions_text(found: Sequence[Prediction]) -> str:
    """Rows beside what shipped coefficients say of them."""
    lines = [f"{'row':<18} {'quantity':<18} {'group':<46} {'measured':>10} {'predicted':>10} {'error':>7}  band"]
    for p in found:
        mark = "in" if p.low <= p.case.measured <= p.high else "OUT"
        band = f"{p.low:.4g} to {p.high:.4g} {mark}" if p.low else "none"
        lines.append(
            f"{p.case.row:<18.18} {p.case.quantity:<18} {p.case.group:<46.46} {p.case.measured:>10.4g} "
            f"{p.expected:>10.4g} {p.expected / p.case.measured - 1:>+6.1%}  {band}"
        )
    for quantity in sorted({p.case.quantity for p in found}):
        own = [p for p in found if p.case.quantity == quantity]
        error = statistics.mean(abs(p.expected / p.case.measured - 1) for p in own)
        inside = sum(p.low <= p.case.measured <= p.high for p in own) / len(own)
        held = f", {inside:.0%} inside the band" if own[0].low else ""
        lines.append(f"{quantity}: {len(own)} rows, mean error {error:.1%}{held}")
    return "\n".join(lines) + "\n"
