"""What the memory ledger reaches on public measurements, each row predicted without its group."""

from __future__ import annotations

import dataclasses

import pytest
from prlc.catalog.memory import trainer_memory

from benchmarks import memory as backtest
from benchmarks.memory_rows import JUNE, Case, case, read

CASES, SKIPPED = read(backtest.ROWS)
SCORED = backtest.left_out(CASES)
KINDS = backtest.kinds(SCORED)


@pytest.mark.parametrize(("kind", "rows", "mean", "worst"), [
    ("full fine-tuning, RL", 11, 0.025, 0.055),
    ("full fine-tuning, SFT with an unfused head", 11, 0.03, 0.065),
    ("LoRA, RL", 18, 0.03, 0.09),
    ("full fine-tuning, RL, June 2026, not left out", 2, 0.03, 0.06),
])  # fmt: skip
def test_left_out_rows_are_predicted_within(kind: str, rows: int, mean: float, worst: float) -> None:
    count, average, largest = backtest.summary(KINDS[kind])
    assert count == rows
    assert average <= mean
    assert abs(largest) <= worst


def test_all_calibration_rows_are_scored() -> None:
    assert SKIPPED == []
    assert len(SCORED) == sum(c.use == "calibrate" and c.measured is not None for c in CASES)


def test_the_catalog_holds_what_the_fit_gives() -> None:
    fitted = backtest.fit([c for c in CASES if c.use == "calibrate" and c.measured is not None])
    assert fitted == trainer_memory()


def test_the_band_holds_nine_of_ten_left_out_rows() -> None:
    low, high = trainer_memory().band
    ratios = [1 / (1 + s.residual) for s in SCORED if s.case.software != JUNE]
    held = sum(low <= ratio <= high for ratio in ratios) / len(ratios)
    assert 0.85 <= held <= 0.95


def test_what_ran_fits_and_what_ran_out_of_memory_does_not() -> None:
    ran = [c for c in CASES if c.use == "calibrate" and c.measured is not None and "96GB" not in c.label]
    assert len(ran) == 36
    assert [c.row for c in ran if not backtest.fits(c)] == []
    failed = {c.row: (fitting, why) for c, fitting, why in backtest.feasibility(CASES)}
    assert {row for row, (fitting, _) in failed.items() if not fitting} == {"PRL-040", "PRL-071", "PRL-075"}
    assert {why for fitting, why in failed.values() if fitting} == {backtest.OTHER_CAUSE}
    assert failed["PRL-040"][1] == failed["PRL-071"][1] == backtest.MEMORY


def test_qwen3_235b_was_in_no_fit() -> None:
    unseen = [c for c in CASES if c.row in ("PRL-070", "PRL-074")]
    assert len(unseen) == 2
    for one in unseen:
        assert abs(backtest.score(one, trainer_memory()).residual) < 0.03


def test_the_report_is_what_the_command_writes() -> None:
    assert (backtest.HERE / "memory.md").read_text() == backtest.report(CASES, SKIPPED)


def test_a_row_is_read_into_its_layout() -> None:
    row = {
        "id": "X-1",
        "use": "calibrate",
        "model": "Qwen/Qwen3-30B-A3B",
        "phase": "train",
        "gpu": "H200",
        "num_gpus": "16",
        "parallelism": "FSDP2 dp=8 ep=8 cp=2; rl LoRA r16 x4 adapters; AC=Offload; flash_attention_3",
        "seq_len": "131072",
        "batch": "1 packed seq per GPU",
        "precision": "bf16",
        "metric": "peak_reserved_memory_per_gpu",
        "value": "80.0",
        "notes": "run 2026-01-15",
    }
    made: Case = case(row)
    layout = made.arguments["layout"]
    assert (layout.dp_shard, layout.cp, layout.ep, layout.micro_batch_tokens) == (8, 2, 8, 65536)
    assert (made.kind, made.measured, made.arguments["activation_offload"]) == ("lora", 80.0, True)
    assert dataclasses.asdict(made.arguments["adapters"]) == {"rank": 16, "copies": 4}
