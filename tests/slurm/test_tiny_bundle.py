"""The tiny run's bundle as a real job: engine, orchestrator and trainer on their nodes, steps trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prlc.runtime.ops.events import read_lines, read_metrics
from prlc.runtime.ops.files import newest_complete
from prlc.runtime.ops.run_paths import RunPaths

from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.runtime]
EXAMPLES = Path(__file__).parents[2] / "examples"
VENV = str(Path(sys.executable).parent.parent)
STEPS = 3
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


def test_tiny_bundle_runs(cluster: Cluster, tmp_path: Path) -> None:
    bundle, paths = tmp_path / "bundle", RunPaths(tmp_path / "run")
    subprocess.run(
        [sys.executable, "-m", "prlc.compiler.cli", "build", str(spec(tmp_path)), "-o", str(bundle)],
        check=True, timeout=120,
    )  # fmt: skip
    job = cluster.submit(bundle, {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(paths.root)})
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
    for role in ("trainer", "orchestrator"):
        ends = [r["event"] for r in read_lines(paths.root / "events" / f"agent-{role}-0.jsonl")]
        assert ends[-1] == "finished"
