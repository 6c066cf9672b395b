"""The summary says what the metrics say, and a dash where they say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc.runtime.ops.events import Events, Metrics
from prlc.runtime.ops.summary import draw, table


def run_of(folder: Path) -> Path:
    metrics = Metrics(folder, "orchestrator", 0, 1)
    for step in (1, 2):
        metrics.log(
            step,
            reward=step / 4,
            lag_mean=1.0,
            lag_max=2,
            tokens_per_second=100.0,
            generated=8 * step,
            trained=8 * step - 4,
            dropped={"failed": 4},
            waiting=0,
        )
    metrics.log(2, reward=0.75, lag_mean=3.0, generated=20, trained=12, dropped={"failed": 4}, waiting=4)
    Metrics(folder, "trainer", 0, 1).log(1, mismatch_kl=1e-6, mismatch_kl_no_replay=2e-3)
    Events(folder, "orchestrator", 0, 1).emit("evaluation", version=2, reward=0.5, rollouts=4)
    return folder


def test_the_table_takes_the_last_line_of_a_step(tmp_path: Path) -> None:
    rows = dict(table(run_of(tmp_path)))
    assert rows["reward, first 1 steps"] == "0.25"
    assert rows["reward, last 1 steps"] == "0.75"
    assert rows["rollouts dropped"] == "4 (failed 4)"
    assert rows["rollouts waiting"] == "4"
    assert rows["mean lag, versions"] == "2"
    assert rows["median mismatch KL with replay"] == "1e-06"
    assert rows["median mismatch KL without replay"] == "0.002"
    assert rows["steps where it is lower with replay"] == "1 of 1"
    assert rows["last evaluation"] == "0.500 (version 2)"


def test_a_run_without_metrics_has_dashes(tmp_path: Path) -> None:
    rows = dict(table(tmp_path))
    assert rows["steps"] == "0"
    assert rows["median mismatch KL with replay"] == "-"
    assert rows["rollouts dropped"] == "-"


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(run_of(tmp_path), tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
