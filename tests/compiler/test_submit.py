"""`prlc submit` starts nothing that the runtime would refuse once its nodes are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from prlc.compiler.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def build(spec: str, folder: Path) -> Path:
    made = CliRunner().invoke(main, ["build", str(EXAMPLES / spec), "-o", str(folder / "bundle")])
    assert made.exit_code == 0, made.output
    return folder / "bundle"


def test_a_plan_that_the_runtime_refuses_is_not_submitted(tmp_path: Path) -> None:
    bundle = build("glm-5.1-swe-28x8-h200.yaml", tmp_path)
    found = CliRunner().invoke(main, ["submit", str(bundle)])
    assert found.exit_code == 1
    assert "PRL371" in found.output
    assert "PRL372" in found.output
    assert "--anyway" in found.output
    readme = (bundle / "README.md").read_text()
    assert "PRL371" in readme
    assert "PRL372" in readme


def test_another_goes_on_to_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm here
    found = CliRunner().invoke(main, ["submit", str(build("qwen3-30b-a3b-1x8-h200.yaml", tmp_path))])
    assert found.exit_code != 0
    assert "sbatch" in found.output
    assert "--anyway" not in found.output
