"""Rows as measurements write them -> what the formulas price, or why they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc import catalog
from prlc.compiler.calibration.cases import cases
from prlc.compiler.calibration.rows import Row, Unsupported, degrees, gpu_of, model_of, read
from prlc.compiler.calibration.serving import serving
from prlc.compiler.forecast.rates import rates_of

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "measurements.csv"
ROWS = {row["id"]: row for row in read(DATA)}
RATES = rates_of(catalog.kernels("prior"))


def row(name: str, **changed: str) -> Row:
    return {**ROWS[name], **changed}


def test_degrees_in_every_spelling() -> None:
    assert degrees("FSDP32 TP8; full AC") == {"fsdp": 32, "tp": 8}
    assert degrees("FSDP2 dp=8 ep=1 cp=1; rl full") == {"fsdp": 2, "dp": 8, "ep": 1, "cp": 1}
    assert degrees("agg vllm 0.16.0 tp4 dp1 ep1 etp4") == {"tp": 4, "dp": 1, "ep": 1, "etp": 4}
    assert degrees("llama3_70b_l12_tp1_pp2_dp4_mbc8_cef")["mbc"] == 8
    assert degrees("TP1 PP2 CP1 VP24 EP8 (tokendrop)") == {"tp": 1, "pp": 2, "cp": 1, "vp": 24, "ep": 8}


def test_models_and_gpus_under_their_many_names() -> None:
    for name, known in (
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("Llama-3-70B SFT", "llama-3.1-70b"),
        ("zai-org/GLM-5.2-FP8", "glm-5.2"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ):
        assert model_of(row("PRL-001", model=name)).name == known
    assert model_of(row("PRL-001", model="llama3_405b_l4"), 4).layers == 4
    assert gpu_of(row("PRL-001", gpu="H100 80GB HBM3")).name == "h100"
    with pytest.raises(Unsupported, match="no GPU"):
        gpu_of(row("PRL-001", gpu="TPU v9"))
    with pytest.raises(Unsupported, match="no model"):
        model_of(row("PRL-001", model="someone/else"))


def test_a_training_row_becomes_a_step() -> None:
    (case,), skipped = cases([row("PRL-158")], RATES)
    assert skipped == []
    assert (case.quantity, case.gpu, case.measured) == ("trainer", "h200", 4.415)
    assert case.group == "prime-rl qwen3-4b full h200"
    (other,), _ = cases([row("TT-003")], RATES)
    # 6,667 tokens/s of each GPU, two sequences of 8,192 on each
    assert other.measured == pytest.approx(2 * 8192 / 6667)
    assert "trainer.lora" not in case.terms
    assert "trainer.lora" in cases([row("PRL-152")], RATES)[0][0].terms


def test_degrees_that_were_multiplied_when_recorded() -> None:
    _, _, shape, load, apart = serving(row("IFX-098"))
    _, _, same, _, _ = serving(row("IFX-100"))
    assert (shape.tp, shape.ep) == (same.tp, same.ep) == (8, 8)
    assert ROWS["IFX-098"]["value"] == ROWS["IFX-100"]["value"]
    assert (load.input, load.output, load.sequences, apart) == (8192, 1024, 4, False)
    _, _, ranks, load, _ = serving(row("IFX-142"))
    assert (ranks.tp, ranks.servers, load.sequences) == (1, 8, 32)


def test_multi_token_prediction_is_read_from_the_speed_that_rows_do_not_explain() -> None:
    assert serving(row("IFX-130"))[2].draft == 1
    assert serving(row("IFX-132"))[2].draft == 0  # the same model, its build without a version
    assert serving(row("IFX-224"))[2].draft == 0


def test_equal_rows_count_once() -> None:
    found, _ = cases([row("IFX-002"), row("IFX-008")], RATES)
    assert [(case.row, case.copies) for case in found] == [("IFX-002", 2)]


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("PRL-158", {"use": "exclude"}, "use is exclude"),
        ("PRL-158", {"metric": "peak_reserved_memory_per_gpu"}, "no formula predicts train"),
        ("TT-003", {"batch": ""}, "batch not stated"),
        ("TT-003", {"seq_len": ""}, "sequence length or GPUs not stated"),
        ("IFX-002", {"value": "OOM"}, "its value is no positive number"),
        ("COM-061", {"value": ""}, "its value is no positive number"),
        ("IFX-002", {"batch": "open loop"}, "lengths, concurrency or layout not stated"),
    ],
)
def test_what_cannot_be_priced_says_why(name: str, changed: dict[str, str], reason: str) -> None:
    found, skipped = cases([row(name, **changed)], RATES)
    assert found == []
    assert reason in skipped[0].reason


def test_every_row_is_priced_or_named() -> None:
    found, skipped = cases(list(ROWS.values()), RATES)
    priced = sum(case.copies * len(case.row.split("+")) for case in found)
    assert priced + len(skipped) == len(ROWS)


@pytest.mark.parametrize("column", list(ROWS["IFX-002"]))
@pytest.mark.parametrize("text", ["", "n/a", "0", "disagg prefill tp8 dp1 ep1 decode tp1 dp16 ep16"])
def test_odd_text_in_any_column_is_priced_or_named(column: str, text: str) -> None:
    for name in ("PRL-158", "TT-003", "SMX-001", "MBR-019", "MBR-020", "IFX-002", "IFX-001", "COM-061", "KRN-045"):
        found, skipped = cases([row(name, **{column: text})], RATES, uses=("calibrate", "noise", text))
        assert len(found) + len(skipped) == 1
        assert all(case.measured > 0 for case in found)


def test_model_flops_give_the_time_that_the_same_run_states() -> None:
    (flops,), _ = cases([row("MBR-020")], RATES, uses=("noise",))
    (tokens,), _ = cases([row("MBR-019")], RATES, uses=("noise",))
    assert flops.measured == pytest.approx(tokens.measured, rel=0.005)
    both, skipped = cases([row("MBR-019"), row("MBR-020")], RATES, uses=("noise",))
    assert [case.row for case in both] == ["MBR-019"]
    assert skipped[0].reason == "the same run's time is priced"


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,value\n1,2\n")
    with pytest.raises(ValueError, match="has no column"):
        read(path)
