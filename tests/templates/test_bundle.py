"""Bundles as files and as scripts: the same bytes, no shell surprise, and a launcher that runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import NotABundle, build, canonical, diff, verify, write
from prlc.schema.codec import load
from prlc.schema.plan import Plan
from prlc.schema.topology import Topology
from prlc.schema.trainer import TrainerConfig
from prlc.templates import sh

from tests.agent.conftest import free_port
from tests.templates.lint import problems, traps
from tests.templates.plans import plan

NASTY = 'a\'b "c" $(touch /tmp/x) `id` $HOME \\ ; & | * {NOT a table} é'
VENV = str(Path(sys.executable).parent.parent)
LIMIT = 120  # s; a guard against a hang


@pytest.mark.parametrize("target", ["slurm", "local"])
@pytest.mark.parametrize("value", ["plain", NASTY])
def test_every_script_passes_bash_shellcheck_and_our_own_lint(tmp_path: Path, target: str, value: str) -> None:
    write(build(plan(target, value=value, run_dir=value.replace("/", "_"))), tmp_path / "bundle")
    assert problems(tmp_path) == []


def test_the_lint_sees_the_three_traps() -> None:
    assert len(traps("#!/bin/bash\nset -e\n#SBATCH -N 1\nexit $rc\n")) == 1
    assert len(traps('srun bash -c "echo $SLURM_PROCID"\n')) == 1
    assert len(traps('wait $!; echo "$(date) rc=$?"\n')) == 1
    assert traps("#!/bin/bash\n#SBATCH -N 1\nsrun true\n") == ["the batch does not end with exit $rc"]


def test_the_same_plan_gives_the_same_bytes_and_its_documents_are_valid(tmp_path: Path) -> None:
    first, second = build(plan()), build(plan())
    assert first == second
    write(first, tmp_path / "b")
    assert load(Topology, tmp_path / "b" / "config" / "topology.yaml") == plan().topology
    assert load(TrainerConfig, tmp_path / "b" / "config" / "trainer.yaml") == plan().trainer
    locked = load(Plan, tmp_path / "b" / "plan.json")
    assert locked == plan()
    assert build(locked) == first, "the lock file is enough to build from"
    assert canonical(locked) == first["plan.json"]


def test_verify_names_what_was_changed(tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    write(build(plan()), bundle)
    assert verify(bundle) == []
    (bundle / "roles" / "trainer.sh").write_text("echo\n")
    (bundle / "spec.yaml").unlink()
    (bundle / "note").write_text("x")
    assert verify(bundle) == ["changed: roles/trainer.sh", "missing: spec.yaml", "not in the manifest: note"]


def test_write_replaces_a_bundle_and_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1").write_text("words")
    with pytest.raises(NotABundle, match="is no bundle"):
        write(build(plan()), other)
    assert (other / "chapter1").read_text() == "words"
    write(build(plan()), tmp_path / "b")
    write(build(plan(value="other")), tmp_path / "b")
    assert verify(tmp_path / "b") == []
    (tmp_path / "b" / "note").write_text("x")
    with pytest.raises(NotABundle, match="note"):
        write(build(plan()), tmp_path / "b")
    assert (tmp_path / "b" / "note").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "thesis"]


def test_diff_speaks_of_values(tmp_path: Path) -> None:
    for name, one in (("a", plan()), ("b", plan(ports=(23001, 24000)))):
        write(build(one), tmp_path / name)
    assert diff(tmp_path / "a", tmp_path / "a") == []
    lines = diff(tmp_path / "a", tmp_path / "b")
    assert "topology.roles[engine].endpoints[1].port: 23002 became 24000" in lines


def test_an_unknown_placeholder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown placeholder \{NO_SUCH\}"):
        build(plan(value="{NO_SUCH}"))


@pytest.mark.parametrize("value", [NASTY, "", "-n", "a\nb"])
@pytest.mark.parametrize("tables", [(), ("PORT",)])
def test_a_quoted_word_is_the_word(value: str, tables: tuple[str, ...]) -> None:
    for text in (value, value + "{PORT}") if tables else (value,):
        script = f"index=1; PORT=(7 8); printf %s {sh(text, tables)}"
        said = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True, timeout=LIMIT)
        assert said.stdout == text.replace("{PORT}", "8")


def start(bundle: Path, run_dir: Path) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "PRLC_RUN_DIR": str(run_dir), "PRLC_VENV": VENV}
    return subprocess.Popen(
        [str(bundle / "run.sh")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def local(finisher: str | None = None) -> Plan:
    more = {} if finisher is None else {"finisher": finisher}
    return plan("local", nodes=1, ports=(free_port(), free_port()), value=NASTY, **more)  # type: ignore[arg-type]


def test_a_local_bundle_runs_ends_and_is_done(tmp_path: Path) -> None:
    write(build(local()), tmp_path / "bundle")
    process = start(tmp_path / "bundle", tmp_path / "run")
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output
    attempt = tmp_path / "run" / "attempts" / "1"
    assert (attempt / "nodes").read_text() == "127.0.0.1\n"
    said = (attempt / "logs" / "trainer-0.log").read_text()
    assert said.startswith(f"{NASTY} {['--value', NASTY]!r}"[:-1])
    assert f"'{tmp_path}/bundle'" in said
    assert "'http://127.0.0.1:1/0'" in said
    assert sorted(p.name for p in (tmp_path / "run" / "done").iterdir()) == ["orchestrator", "trainer"]
    assert verify(tmp_path / "bundle") == [], "a run leaves its bundle alone"


def test_a_stopped_local_run_goes_on_as_a_second_attempt(tmp_path: Path) -> None:
    waiting = (
        "import os, pathlib, time\n"
        "run = pathlib.Path(os.environ['PRLC_RUN_DIR'])\n"
        "print('life', os.environ['PRLC_ATTEMPT'], flush=True)\n"
        "time.sleep(600) if os.environ['PRLC_ATTEMPT'] == '1' else None\n"
        "(run / 'done' / os.environ['PRLC_ROLE']).touch()"
    )
    write(build(local(waiting)), tmp_path / "bundle")
    process = start(tmp_path / "bundle", tmp_path / "run")
    logs = [tmp_path / "run/attempts/1/logs" / f"{role}-0.log" for role in ("trainer", "orchestrator")]
    deadline = time.monotonic() + LIMIT
    while not all(log.exists() and log.read_text() for log in logs):
        assert time.monotonic() < deadline, "it never started"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, output
    assert not (tmp_path / "run" / "FAILED").exists(), "a person's stop is no failure"
    again = start(tmp_path / "bundle", tmp_path / "run")
    output, _ = again.communicate(timeout=LIMIT)
    assert again.returncode == 0, output
    attempts = tmp_path / "run" / "attempts"
    assert sorted(p.name for p in attempts.iterdir()) == ["1", "2", "latest"]
    assert os.readlink(attempts / "latest") == "2"
    assert (attempts / "1/logs/trainer-0.log").read_text() == "life 1\n"
    assert (attempts / "2/logs/trainer-0.log").read_text() == "life 2\n"


def test_a_failure_ends_the_local_run_with_its_cause(tmp_path: Path) -> None:
    write(build(local("raise SystemExit(9)")), tmp_path / "bundle")
    process = start(tmp_path / "bundle", tmp_path / "run")
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1, output
    assert "ended with status 9" in json.loads((tmp_path / "run" / "FAILED").read_text())["cause"]
