"""The tiny run's bundle as a real job: engine, orchestrator and trainer on their nodes, steps trained."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prlc.runtime.ops.events import read_lines, read_metrics
from prlc.runtime.ops.files import newest_complete
from prlc.runtime.ops.run_paths import RunPaths

from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.runtime]
EXAMPLES = Path(__file__).parents[2] / "examples"
VENV = str(Path(sys.executable).parent.parent)
STEPS = 24  # more than a policy that lags can have generated when its engine dies
LIMIT = 900.0  # s; a guard against a hang


def python(module: str, *arguments: str) -> None:
    """Run a module of the runtime, as the demo does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, timeout=600, env=environment)


def spec(folder: Path) -> Path:
    """The example with few steps and a model made here; without the warm start all rewards would be equal."""
    random, data, model = (str(folder / name) for name in ("random", "demonstrations.jsonl", "model"))
    python("prlc.runtime.ops.tiny_model", "--out", random, "--seed", "0")
    python(
        "prlc.runtime.environments.demonstrations",
        "--env", "lookup", "--n", "2048", "--noise", "0.5", "--seed", "1", "--out", data,
    )  # fmt: skip
    python(
        "prlc.runtime.trainer.sft",
        "--model", random, "--data", data, "--steps", "150", "--lr", "2e-3", "--out", model,
    )  # fmt: skip
    document = yaml.safe_load((EXAMPLES / "tiny-moe-slurm-3.yaml").read_text("utf-8"))
    document["checkpoint"] = model
    document["algorithm"]["max_steps"] = STEPS
    for key in ("cluster", "model"):
        if (EXAMPLES / document[key]).exists():
            document[key] = str(EXAMPLES / document[key])
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def logs(run_dir: Path) -> str:
    """The last lines of every log, for a failed assertion."""
    parts = []
    for log in sorted(run_dir.glob("attempts/*/logs/*.log")):
        parts.append(f"== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]))
    failed = run_dir / "FAILED"
    return "\n".join([failed.read_text() if failed.exists() else "no FAILED", *parts])


def until(what: Callable[[], bool], run_dir: Path) -> None:
    """Wait until it is so. Fails with the logs."""
    end = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > end or (run_dir / "FAILED").exists():
            pytest.fail(logs(run_dir))
        time.sleep(0.5)


def walk(cluster: Cluster, run_dir: Path) -> list[dict[str, Any]]:
    """What every port of the run answers without the token, on all nodes."""
    found = []
    for node in ("n01", "n02", "n03"):
        said = cluster.on(node, sys.executable, str(Path(__file__).with_name("walk.py")), str(run_dir))
        found += [json.loads(line) for line in said.splitlines()]
    return found


def refused(ports: list[dict[str, Any]], token: str) -> None:
    """Every HTTP port refuses; what does not speak HTTP is torch's own meeting point, which knows no token."""
    for port in ports:
        at, said = (port["port"], port["command"]), set(port["status"])
        if said == {""}:
            assert any(name in port["command"] for name in ("torchrun", "prlc.runtime.trainer", "VLLM", "vllm")), at
        elif "vllm serve" in port["command"]:
            assert said == {"401"}, at
        else:
            assert said <= {"401", "403", "404"}, at
        if said != {""}:
            assert port["address"].startswith(("10.77.1.", "127.")), at
    assert any("vllm serve" in port["command"] and port["status"] != [""] for port in ports)
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert token.encode() not in line.read_bytes(), line


def engine_pid(paths: RunPaths) -> int | None:
    """The engine that is ready; None: none is."""
    try:
        pid: int = json.loads(paths.ready(1, "engine", 0).read_text())["pid"]
        return pid
    except FileNotFoundError:
        return None


def test_tiny_bundle_runs(cluster: Cluster, tmp_path: Path) -> None:
    """Trains, refuses whoever has no token, and loses an engine on the way."""
    bundle, paths = tmp_path / "bundle", RunPaths(tmp_path / "run")
    subprocess.run(
        [sys.executable, "-m", "prlc.compiler.cli", "build", str(spec(tmp_path)), "-o", str(bundle)],
        check=True, timeout=120,
    )  # fmt: skip
    job = cluster.submit(bundle, {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(paths.root)})
    until(lambda: paths.metrics("trainer", 0).exists() and bool(read_metrics(paths.metrics("trainer", 0))), paths.root)
    first = engine_pid(paths)
    cluster.on("n01", "kill", "-KILL", str(first))
    until(lambda: engine_pid(paths) not in (None, first), paths.root)
    token = paths.token(1).read_text()
    refused(walk(cluster, paths.root), token)
    try:
        state = cluster.wait(job, LIMIT)
    except TimeoutError:
        cluster.run("scancel", job)
        pytest.fail(f"the job did not end\n{logs(paths.root)}")
    assert state == "COMPLETED", logs(paths.root)
    assert cluster.node_states() == ["idle"] * 3
    assert sorted(read_metrics(paths.metrics("trainer", 0))) == list(range(1, STEPS + 1))
    assert newest_complete(paths.checkpoints) == paths.checkpoint(STEPS)
    assert newest_complete(paths.policies) == paths.policy(STEPS)
    engine = [r["event"] for r in read_lines(paths.root / "events" / "agent-engine-0.jsonl")]
    assert [event for event in engine if event in ("started", "ready")] == ["started", "ready"] * 2
    assert paths.attempt(2).exists() is False
    for log in paths.root.rglob("*"):
        if log.is_file() and log != paths.token(1):
            assert token.encode() not in log.read_bytes(), log
    for role in ("trainer", "orchestrator"):
        ends = [r["event"] for r in read_lines(paths.root / "events" / f"agent-{role}-0.jsonl")]
        assert ends[-1] == "finished"
