"""Accuracy of the trainer's memory ledger: every public row, each predicted without the rows of its own group.

`python -m benchmarks.memory` prints the summary; `--write` also writes memory.md beside this file; `--rows FILE`
scores another file of the same columns with the catalog's coefficients as they are.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prlc.catalog.memory import trainer_memory
from prlc.compiler.ledger.trainer import torch_reserved
from prlc.schema.memory import TrainerMemory

from benchmarks.memory_rows import JUNE, Case, numbers_of, read

HERE = Path(__file__).parent
ROWS = HERE / "data" / "memory.csv"
GIB = 2**30
MEMORY = "out of memory"
OTHER_CAUSE = "not on memory: FlashAttention 3 has no kernels for B200"
UNKNOWN = "exit code alone is recorded"


@dataclass(frozen=True)
class Scored:
    """A case with what the ledger says, in GiB."""

    case: Case
    predicted: float

    @property
    def residual(self) -> float:
        """Predicted over measured, less one."""
        assert self.case.measured is not None
        return self.predicted / self.case.measured - 1


def score(case: Case, numbers: TrainerMemory) -> Scored:
    """What torch would reserve at the peak under these coefficients."""
    return Scored(case, torch_reserved(case.ledger(numbers)) / GIB)


def _best(cases: Sequence[Case], numbers: TrainerMemory, field: str, values: Iterable[float]) -> TrainerMemory:
    """The coefficients with the value of `field` that has the least squared residual; unchanged without cases."""
    if not cases:
        return numbers

    def loss(value: float) -> float:
        tried = dataclasses.replace(numbers, **{field: value})  # type: ignore[arg-type]
        return sum(score(case, tried).residual ** 2 for case in cases)

    return dataclasses.replace(numbers, **{field: min(values, key=loss)})  # type: ignore[arg-type]


def fit(cases: Sequence[Case]) -> TrainerMemory:
    """The three fitted coefficients from these rows: scale, then the unfused head, then the selective share."""
    rl = [c for c in cases if c.kind in ("full", "lora") and c.software != JUNE]
    sft = [c for c in cases if c.kind == "sft" and c.group.startswith("prime-rl")]
    titan = [c for c in cases if c.group.startswith("torchtitan")]
    numbers = _best(rl, trainer_memory(), "scale", (n / 100 for n in range(60, 141)))
    numbers = _best(sft, numbers, "unfused_head", (n / 10 for n in range(140, 221)))
    return _best(titan, numbers, "selective_share", (n / 1000 for n in range(50, 301, 5)))


def left_out(cases: Sequence[Case]) -> list[Scored]:
    """Each calibration row by coefficients that saw no row of its group."""
    used = [c for c in cases if c.use == "calibrate" and c.measured is not None]
    found = []
    for group in dict.fromkeys(c.group for c in used):
        mine = [c for c in used if c.group == group]
        if mine[0].software == JUNE:  # one scale for two rows of one model: nothing can be left out
            found += [score(case, numbers_of(case)) for case in mine]
            continue
        numbers = fit([c for c in used if c.group != group])
        found += [score(case, numbers) for case in mine]
    return found


def band(scored: Sequence[Scored]) -> tuple[float, float]:
    """Measured over predicted at the 5th and 95th percentile of these rows."""
    ratios = sorted(1 / (1 + s.residual) for s in scored)
    last = len(ratios) - 1
    return ratios[round(0.05 * last)], ratios[round(0.95 * last)]


def fits(case: Case) -> bool:
    """What the plan would say: the whole ledger, reserve included, within the GPU."""
    ledger = case.ledger(numbers_of(case))
    return ledger.total <= ledger.capacity


def cause(case: Case) -> str:
    """Why a failed row failed, as far as its record or the known kernels say."""
    if "OutOfMemoryError" in case.why:
        return MEMORY
    return OTHER_CAUSE if case.attention == "flash_attention_3" and "B200" in case.label else UNKNOWN


def feasibility(cases: Sequence[Case]) -> list[tuple[Case, bool, str]]:
    """(case, whether the ledger lets it fit, why it failed) of the feasibility rows."""
    return [(case, fits(case), cause(case)) for case in cases if case.use == "feasibility"]


def summary(scored: Sequence[Scored]) -> tuple[int, float, float]:
    """(rows, mean absolute residual, residual of the worst row)."""
    values = [s.residual for s in scored]
    return len(values), sum(map(abs, values)) / len(values), max(values, key=abs)


def kinds(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Rows by what they are, older and newer software apart."""
    old = [s for s in scored if s.case.software != JUNE]
    return {
        "full fine-tuning, RL": [s for s in old if s.case.kind == "full"],
        "full fine-tuning, SFT with an unfused head": [s for s in old if s.case.kind == "sft"],
        "LoRA, RL": [s for s in old if s.case.kind == "lora"],
        "full fine-tuning, RL, June 2026, not left out": [s for s in scored if s.case.software == JUNE],
    }


def _table(scored: Sequence[Scored]) -> list[str]:
    lines = ["| row | configuration | measured GiB | predicted GiB | residual |", "| --- | --- | --- | --- | --- |"]
    for s in scored:
        mode = "LoRA" if s.case.kind == "lora" else s.case.kind
        lines.append(
            f"| {s.case.row} | {mode}: {s.case.label} | {s.case.measured:.2f} | {s.predicted:.2f} | {s.residual:+.1%} |"
        )
    return lines


def report(cases: Sequence[Case], skipped: Sequence[tuple[str, str]]) -> str:
    """memory.md."""
    scored = left_out(cases)
    fitted = fit([c for c in cases if c.use == "calibrate" and c.measured is not None])
    low, high = band([s for s in scored if s.case.software != JUNE])
    lines = [
        "# Memory of the trainer: predicted and measured",
        "",
        "Made by `python -m benchmarks.memory --write` from `data/memory.csv`: peak memory that torch reserved, a GPU.",
        "Each row is predicted by coefficients fitted without its group (the model, or for torchtitan the number of",
        "GPUs). What each coefficient is: `docs/methods/memory.md`.",
        "",
        "| rows | number | mean absolute residual | worst |",
        "| --- | --- | --- | --- |",
    ]
    for name, part in kinds(scored).items():
        if part:
            count, mean, worst = summary(part)
            lines.append(f"| {name} | {count} | {mean:.1%} | {worst:+.1%} |")
    lines += [
        "",
        f"Fitted on all rows: scale {fitted.scale:g}, unfused head {fitted.unfused_head:g} B a logit, selective share "
        f"{fitted.selective_share:g}. Measured over predicted, 5th to 95th percentile: {low:.3f} to {high:.3f}.",
        "",
        *_table(scored),
        "",
        "## Runs that failed",
        "",
        "| row | configuration | ledger of GPU, GiB | says | what happened |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case, fitting, why in feasibility(cases):
        ledger = case.ledger(numbers_of(case))
        size = f"{ledger.total / GIB:.0f} of {ledger.capacity / GIB:.0f}"
        says = "fits" if fitting else "does not fit"
        lines.append(f"| {case.row} | {case.label} | {size} | {says} | failed, {why} |")
    ran = [c for c in cases if c.use == "calibrate" and c.measured is not None and "96GB" not in c.label]
    wrong = [c.row for c in ran if not fits(c)]
    lines += [
        "",
        f"Of {len(ran)} calibration rows that ran on a GPU of the catalog, the ledger lets {len(ran) - len(wrong)} fit"
        + (f"; not {', '.join(wrong)}." if wrong else "."),
        "",
        "## Shown, not used",
        "",
        "Rows marked `exclude` in the data (B200 with slow kernels), by the catalog's coefficients.",
        "",
        *_table([score(c, numbers_of(c)) for c in cases if c.use == "exclude" and c.measured is not None]),
        "",
    ]
    if skipped:
        lines += [f"No case: {', '.join(f'{row} ({why})' for row, why in skipped)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="score this file with the catalog's coefficients")
    parser.add_argument("--write", action="store_true", help="write memory.md")
    asked = parser.parse_args()
    cases, skipped = read(asked.rows or ROWS)
    if asked.rows:
        print("\n".join(_table([score(c, numbers_of(c)) for c in cases if c.measured is not None])))
        for row, why in skipped:
            print(f"{row}: {why}")
        return
    text = report(cases, skipped)
    print(text)
    if asked.write:
        (HERE / "memory.md").write_text(text)


if __name__ == "__main__":
    main()
