"""Begin and end of an attempt: one at a time, numbered, with a last line that says what comes next."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prlc.runtime.agent import attempt, finish, watch
from prlc.runtime.agent.attempt import Refused, begin, identity
from prlc.runtime.agent.state import RunState
from prlc.runtime.ops.events import Events
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Endpoint, Role, Topology

TOPOLOGY = Topology(
    run="test", nodes=1,
    roles=(
        Role(name="engine", kind="engine", endpoints=(Endpoint(index=0, node=0, port=1),), ready="health",
             finishes=False, stop_grace=0.2),
        Role(name="trainer", kind="trainer", endpoints=(Endpoint(index=0, node=0, port=0),), ready="none",
             finishes=True, stop_grace=0.2),
    ),
)  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return RunPaths(tmp_path / "run")


def gone() -> int:
    """A process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def checkpoint(paths: RunPaths, step: int) -> None:
    paths.checkpoint(step).mkdir(parents=True)
    (paths.checkpoint(step) / "COMPLETE").touch()


def test_attempts_are_numbered_and_nothing_of_an_earlier_one_is_touched(paths: RunPaths) -> None:
    assert begin(paths, TOPOLOGY, identity(gone())) == 1
    first = paths.token(1).read_text()
    assert stat.S_IMODE(paths.token(1).stat().st_mode) == 0o600
    (paths.attempt(1) / "logs" / "x.log").write_text("kept")
    paths.failed.write_text("{}")
    assert begin(paths, TOPOLOGY, identity(gone())) == 2
    assert paths.token(2).read_text() != first == paths.token(1).read_text()
    assert (paths.attempt(1) / "logs" / "x.log").read_text() == "kept"
    assert (paths.attempt(2) / "FAILED.before").exists()
    assert not paths.failed.exists()
    assert os.readlink(paths.root / "attempts" / "latest") == "2"


def test_a_run_that_a_living_process_has_is_refused(paths: RunPaths) -> None:
    assert begin(paths, TOPOLOGY, identity(os.getpid())) == 1
    with pytest.raises(Refused, match=f"process {os.getpid()} on .* runs .* already, as attempt 1"):
        begin(paths, TOPOLOGY, identity(os.getpid()))
    owner = json.loads(paths.owner.read_text())
    paths.owner.write_text(json.dumps({**owner, "started": owner["started"] - 1}))
    assert begin(paths, TOPOLOGY, identity(gone())) == 2, "the number belongs to another process now"
    paths.owner.write_text(json.dumps({**owner, "host": "elsewhere"}))
    with pytest.raises(Refused, match="delete the run's OWNER file"):
        begin(paths, TOPOLOGY, identity(gone()))
    paths.owner.write_text("{")
    with pytest.raises(Refused, match="cannot be read"):
        begin(paths, TOPOLOGY, identity(gone()))


@pytest.mark.parametrize(
    ("said", "status", "error", "answer"),
    [
        ("RUNNING", 0, "", "job 7 (RUNNING) runs"),
        ("PENDING", 0, "", "job 7 (PENDING) runs"),
        ("CANCELLED", 0, "", None),
        ("", 1, "slurm_load_jobs error: Invalid job id specified", None),
        ("", 1, "Unable to contact slurm controller", "Slurm does not say"),
        ("COMPLETING", 0, "", "Slurm does not say"),
    ],
)
def test_slurm_is_asked_about_a_job(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int, error: str,
    answer: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(attempt, "SLURM_PATIENCE", 0.1)
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/bash\necho '{error}' >&2; [ -z '{said}' ] || echo '{said}'; exit {status}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert begin(paths, TOPOLOGY, identity(gone())) == 1
    assert begin(paths, TOPOLOGY, identity(gone())) == 2, "the same job after a requeue"
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    if answer is None:
        assert begin(paths, TOPOLOGY, identity(gone())) == 3
    else:
        with pytest.raises(Refused) as refused:
            begin(paths, TOPOLOGY, identity(gone()))
        assert answer in str(refused.value)


def test_two_launchers_in_one_interactive_job_are_two(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    begin(paths, TOPOLOGY, identity(os.getpid()))
    with pytest.raises(Refused, match=f"process {os.getpid()} on"):
        begin(paths, TOPOLOGY, identity(gone()))


def test_a_run_that_has_ended_well_is_not_started(paths: RunPaths) -> None:
    begin(paths, TOPOLOGY, identity(gone()))
    paths.done("trainer").touch()
    assert begin(paths, TOPOLOGY, identity(gone())) is None
    assert sorted(p.name for p in (paths.root / "attempts").iterdir()) == ["1", "latest"]


def test_the_last_line_and_the_status_say_what_comes_next(paths: RunPaths) -> None:
    checkpoint(paths, 4)
    begin(paths, TOPOLOGY, identity(gone()))
    state = RunState(paths, TOPOLOGY, 1)
    assert finish.outcome(state, 143) == (143, "stopped by SIGTERM; the newest complete checkpoint is step 4")
    status, line = finish.outcome(state, 140)
    assert status == 140
    assert "as at this attempt's start: another attempt would meet the same" in line
    checkpoint(paths, 6)
    (paths.checkpoint(8)).mkdir()
    status, line = finish.outcome(state, 140)
    assert status == 75
    assert "step 6, 2 steps after this attempt's start: another attempt goes on there" in line
    state.fail("engine-0 ended with status 9")
    assert finish.outcome(state, 1)[0] == 75
    assert finish.outcome(state, 1)[1].startswith("FAILED: engine-0 ended with status 9")
    paths.failed.unlink()
    paths.done("trainer").touch()
    assert finish.outcome(state, 137) == (0, "done")


def test_an_agent_without_a_sign_of_life_is_lost_and_one_that_has_ended_is_not(paths: RunPaths) -> None:
    begin(paths, TOPOLOGY, identity(gone()))
    it = watch.Watch(RunState(paths, TOPOLOGY, 1), lost_after=10)
    engine, trainer = (Events(paths.root, f"agent-{name}", 0, 1) for name in ("engine", "trainer"))
    engine.emit("started")
    trainer.emit("finished")
    assert it.lost(0) == []
    assert it.lost(10) == []
    assert it.lost(10.1) == ["engine-0"]
    engine.emit("heartbeat")
    assert it.lost(11) == []
    assert it.lost(22) == ["engine-0"]


def test_what_outlives_the_end_of_the_run_is_ended(paths: RunPaths) -> None:
    begin(paths, TOPOLOGY, identity(gone()))
    state = RunState(paths, TOPOLOGY, 1)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        state.fail("whatever")
        began = time.monotonic()
        watch.run(state, [left.pid], lost_after=1.0, slack=0.3)
        assert left.wait(1) == -15
        assert time.monotonic() - began < 10
    finally:
        left.kill()
