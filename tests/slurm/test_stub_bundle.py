"""A bundle of stub roles as a real job on three nodes: placement, end, failure, stop."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import build, verify, write
from prlc.schema.plan import Plan

from tests.slurm.cluster import Cluster
from tests.templates.plans import plan

pytestmark = pytest.mark.slurm
VENV = str(Path(sys.executable).parent.parent)
LIMIT = 180.0  # s; a guard against a hang


def submit(cluster: Cluster, tmp_path: Path, it: Plan) -> tuple[str, Path]:
    bundle, run_dir = tmp_path / "bundle", tmp_path / "run"
    write(build(it), bundle)
    return cluster.submit(bundle, {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(run_dir)}), run_dir


def output(tmp_path: Path, job: str) -> str:
    log = tmp_path / "bundle" / f"stub-{job}.out"
    return log.read_text() if log.exists() else "(no output)"


def test_a_stub_bundle_runs_on_its_nodes_and_completes(cluster: Cluster, tmp_path: Path) -> None:
    job, run_dir = submit(cluster, tmp_path, plan())
    assert cluster.wait(job, LIMIT) == "COMPLETED", output(tmp_path, job)
    attempt = run_dir / "attempts" / "1"
    assert (attempt / "nodes").read_text().split() == ["10.77.1.1", "10.77.1.2", "10.77.1.3"]
    said = (attempt / "logs" / "trainer-0.log").read_text()
    assert said.split()[-1] == "n03", "the trainer's node is the third"
    assert "http://10.77.1.1:1/0" in said
    assert cluster.node_states() == ["idle"] * 3
    problems = verify(tmp_path / "bundle")
    assert problems == [f"not in the manifest: stub-{job}.out"]


def test_a_failed_role_fails_the_job_with_its_cause(cluster: Cluster, tmp_path: Path) -> None:
    job, run_dir = submit(cluster, tmp_path, plan(finisher="raise SystemExit(9)"))
    assert cluster.wait(job, LIMIT) == "FAILED", output(tmp_path, job)
    assert "ended with status 9" in json.loads((run_dir / "FAILED").read_text())["cause"]
    assert cluster.node_states() == ["idle"] * 3


def test_scancel_stops_everything_and_a_second_job_ends_the_run(cluster: Cluster, tmp_path: Path) -> None:
    waiting = (
        "import os, pathlib, time\n"
        "print('life', os.environ['PRLC_ATTEMPT'], flush=True)\n"
        "time.sleep(600) if os.environ['PRLC_ATTEMPT'] == '1' else None\n"
        "(pathlib.Path(os.environ['PRLC_RUN_DIR']) / 'done' / os.environ['PRLC_ROLE']).touch()"
    )
    job, run_dir = submit(cluster, tmp_path, plan(finisher=waiting))
    log = run_dir / "attempts" / "1" / "logs" / "trainer-0.log"
    deadline = time.monotonic() + LIMIT
    while not (log.exists() and log.read_text()):
        assert time.monotonic() < deadline, output(tmp_path, job)
        time.sleep(0.2)
    cluster.run("scancel", job)
    assert cluster.wait(job, LIMIT) == "CANCELLED"
    assert not (run_dir / "FAILED").exists()
    (tmp_path / "bundle" / f"stub-{job}.out").unlink()
    second, _ = submit(cluster, tmp_path, plan(finisher=waiting))
    assert cluster.wait(second, LIMIT) == "COMPLETED", output(tmp_path, second)
    assert (run_dir / "attempts" / "2" / "logs" / "trainer-0.log").read_text() == "life 2\n"
    assert cluster.node_states() == ["idle"] * 3
