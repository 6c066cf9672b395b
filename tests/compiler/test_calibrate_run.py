"""Coefficients from a run's own metrics, and the command that writes them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prlc import catalog
from prlc.compiler.calibration.run import NoMeasurement, from_run, read_run
from prlc.compiler.cli import main
from prlc.compiler.forecast.step import step_time
from prlc.compiler.plan import plan
from prlc.compiler.resolve import Resolved, resolve
from prlc.compiler.search.solve import solve

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "qwen3-30b-a3b-1x8-h200.yaml"
DATA = ROOT / "benchmarks" / "data" / "measurements.csv"


def resolved() -> Resolved:
    found, diagnostics = resolve(SPEC.read_text("utf-8"), str(SPEC))
    assert found is not None, diagnostics
    return found


def write_run(folder: Path, steps: int, step: float, wait: float, publish: float) -> Path:
    """A run folder whose first two steps are ten times slower, whose last is logged twice and torn."""
    (folder / "metrics").mkdir(parents=True)
    lines = []
    for number in range(1, steps + 1):
        slow = 10 if number <= 2 else 1 + 0.02 * (number % 3 - 1)
        record = {"step": number, "step_seconds": step * slow, "wait_seconds": wait, "publish_seconds": publish}
        lines.append(json.dumps(record))
    lines.insert(3, json.dumps({"step": 5, "step_seconds": 999.0, "wait_seconds": 0.0, "publish_seconds": 0.0}))
    lines.append('{"step": 77, "step_sec')
    (folder / "metrics" / "trainer-0.jsonl").write_text("\n".join(lines), "utf-8")
    return folder


def test_a_run_scales_the_trainer_and_its_filesystem(tmp_path: Path) -> None:
    r, layout = resolved(), solve(resolved()).best.layout
    planned = step_time(r.spec, r.facts, r.gpu, r.cluster, layout)
    times = read_run(write_run(tmp_path, 20, 1.5 * planned.trainer.seconds, 0.0, 20.0))
    found = from_run(times, r, layout, "mine")
    assert found.trainer == pytest.approx(1.5, rel=0.01)
    assert found.engine is None  # the trainer never waited
    assert found.filesystem == pytest.approx(r.facts.total_params * 2 / 20.0)
    path = tmp_path / "mine.yaml"
    from prlc.compiler.calibration.calibrate import to_yaml

    path.write_text(to_yaml(found.kernels), "utf-8")
    again = step_time(dataclasses.replace(r.spec, kernels=str(path)), r.facts, r.gpu, r.cluster, layout)
    assert again.trainer.seconds == pytest.approx(1.5 * planned.trainer.seconds, rel=0.01)
    assert again.rates.band("trainer").rows == 18
    assert again.rollouts == pytest.approx(planned.rollouts)


def test_a_trainer_that_waits_measures_the_engines(tmp_path: Path) -> None:
    r, layout = resolved(), solve(resolved()).best.layout
    planned = step_time(r.spec, r.facts, r.gpu, r.cluster, layout)
    period = 1.4 * planned.rollouts
    step = planned.trainer.seconds
    times = read_run(write_run(tmp_path, 12, step, period - step - 1.0, 1.0))
    found = from_run(times, r, layout, "mine")
    assert found.engine is not None
    assert found.engine > 1.2
    path = tmp_path / "mine.yaml"
    from prlc.compiler.calibration.calibrate import to_yaml

    path.write_text(to_yaml(found.kernels), "utf-8")
    again = step_time(dataclasses.replace(r.spec, kernels=str(path)), r.facts, r.gpu, r.cluster, layout)
    assert again.rollouts == pytest.approx(period, rel=0.02)


def test_a_run_that_is_too_short_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoMeasurement, match="cannot be read"):
        read_run(tmp_path)
    with pytest.raises(NoMeasurement, match="5 are needed"):
        read_run(write_run(tmp_path, 3, 1.0, 0.0, 1.0))


def test_the_command_writes_a_file_that_a_spec_names(tmp_path: Path) -> None:
    out = tmp_path / "kernels.yaml"
    own = str(DATA.parent / "own.csv")
    result = CliRunner().invoke(main, ["calibrate", str(DATA), own, "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "trainer" in result.output
    assert "holds" in result.output
    written = catalog.kernels(out)
    assert (written.name, written.gpu) == ("kernels", "h200")
    assert (written.trainer, written.decode) == (catalog.kernels("h200").trainer, catalog.kernels("h200").decode)
    spec = yaml.safe_load(SPEC.read_text("utf-8"))
    own = tmp_path / "run.yaml"
    own.write_text(yaml.safe_dump({**spec, "kernels": "kernels.yaml"}), "utf-8")  # beside the spec
    named, found = plan(own.read_text("utf-8"), str(own))
    assert named is not None, found
    assert "kernels kernels;" in named.forecast.source


def test_a_plan_may_be_told_its_kernels(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 8, 30.0, 0.0, 25.0)
    out = tmp_path / "slow.yaml"
    CliRunner().invoke(main, ["calibrate", str(run), "--spec", str(SPEC), "-o", str(out)])
    result = CliRunner().invoke(main, ["plan", str(SPEC), "--json", "--kernels", str(out)])
    assert result.exit_code == 0, result.output
    assert "kernels slow;" in json.loads(result.stdout)["forecast"]["source"]


def test_the_command_scales_by_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 8, 30.0, 0.0, 25.0)
    result = CliRunner().invoke(main, ["calibrate", str(run), "--spec", str(SPEC), "-o", str(tmp_path / "own.yaml")])
    assert result.exit_code == 0, result.output
    assert "6 steps after warm-up" in result.output
    assert catalog.kernels(tmp_path / "own.yaml").software["trainer"].startswith("run qwen3-30b-a3b")


def test_predictions_beside_rows() -> None:
    result = CliRunner().invoke(main, ["calibrate", str(DATA), "--predict"])
    assert result.exit_code == 0
    assert "decode: 76 rows" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([str(DATA), "--gpu", "tpu"], "no GPU tpu"),
        ([str(SPEC)], "has no column"),
        ([str(ROOT / "examples")], "name its spec with --spec"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["calibrate", *arguments])
    assert result.exit_code == 2
    assert text in result.output


def test_kernels_that_are_not_there_or_of_another_gpu_are_refused(tmp_path: Path) -> None:
    spec = yaml.safe_load(SPEC.read_text("utf-8"))
    for named, cause in (("nowhere.yaml", "nowhere.yaml"), ("h100", "kernels h100 are of GPU h100")):
        text = yaml.safe_dump({**spec, "kernels": named})
        made, found = plan(text, str(SPEC))
        assert made is None
        assert [d.code for d in found if d.severity == "error"] == ["PRL206"]
        assert cause in next(d.message for d in found if d.code == "PRL206")
