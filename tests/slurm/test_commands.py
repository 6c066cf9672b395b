"""prlc submit, status, logs and cancel on a bundle of stub roles, on Slurm and on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import build, write
from prlc.schema.plan import Plan

from tests.agent.conftest import free_port
from tests.slurm.cluster import Cluster
from tests.templates.plans import plan

VENV = str(Path(sys.executable).parent.parent)
PRLC = [sys.executable, "-m", "prlc.compiler.cli"]
LIMIT = 90.0  # s; a guard against a hang
WAIT = "import os, time; print('up', flush=True); time.sleep(600)"


def bundle(tmp_path: Path, it: Plan) -> tuple[str, dict[str, str]]:
    write(build(it), tmp_path / "bundle")
    return str(tmp_path / "bundle"), {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(tmp_path / "run")}


def eventually(path: Path) -> None:
    end = time.monotonic() + LIMIT
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.2)


@pytest.mark.slurm
def test_a_job_from_submit_to_cancel(cluster: Cluster, tmp_path: Path) -> None:
    where, environment = bundle(tmp_path, plan(finisher=WAIT))

    def prlc(*words: str) -> str:
        return cluster.run(*PRLC, *words, environment=environment)

    assert "none has begun" in prlc("status", where)
    assert "sbatch takes the job" in prlc("submit", "--test", where)
    said = prlc("submit", where)
    job = said.split()[1].rstrip(";")
    eventually(tmp_path / "run/attempts/1/logs/trainer-0.log")
    with pytest.raises(RuntimeError, match=f"job {job} .RUNNING. has"):
        prlc("submit", where)
    shown = json.loads(prlc("status", "--json", where))
    assert shown["launcher"] == f"job {job}: running"
    assert shown["processes"]["trainer-0"].startswith("started")
    assert shown["processes"]["engine-1"].startswith("ready")
    assert prlc("logs", where, "trainer-0") == "up\n"
    assert "cancelled" in prlc("cancel", where)
    assert cluster.wait(job, LIMIT) == "CANCELLED"
    with pytest.raises(RuntimeError, match="does not run: cancelled"):
        prlc("cancel", where)
    assert cluster.node_states() == ["idle"] * 3


@pytest.mark.slurm
def test_a_changed_bundle_is_not_submitted(cluster: Cluster, tmp_path: Path) -> None:
    where, environment = bundle(tmp_path, plan())
    (tmp_path / "bundle/roles/trainer.sh").write_text("echo\n")
    with pytest.raises(RuntimeError, match=r"changed: roles/trainer.sh[\s\S]*build it again"):
        cluster.run(*PRLC, "submit", where, environment=environment)
    assert not (tmp_path / "run").exists()


def test_the_same_commands_on_one_machine(tmp_path: Path) -> None:
    where, environment = bundle(tmp_path, plan("local", nodes=1, ports=(free_port(), free_port()), finisher=WAIT))
    variables = {"PATH": os.environ["PATH"], **environment}

    def prlc(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PRLC, *words], env=variables, capture_output=True, text=True, timeout=LIMIT, check=False
        )

    assert "no attempt" in prlc("cancel", where).stderr
    run = subprocess.Popen([*PRLC, "submit", where], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        eventually(tmp_path / "run/attempts/1/logs/trainer-0.log")
        second = prlc("submit", where)
        assert second.returncode == 1
        assert f"process {run.pid} runs" in second.stderr
        assert f"process {run.pid}: running" in prlc("status", where).stdout
        assert prlc("logs", where, "orchestrator-0", "--lines", "1").stdout == "up\n"
        assert "it has: engine-0" in prlc("logs", where, "router-0").stderr
        assert prlc("cancel", where).returncode == 0
        assert run.wait(LIMIT) == 143
        assert "does not run any more" in prlc("cancel", where).stderr
        assert "ended" in prlc("status", where).stdout
    finally:
        run.kill()
        run.wait()
