"""The bundle of the 28-node example as a real job on emulated nodes, as many as it plans, its programs stood in for."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import build, write
from prlc.compiler.plan import plan

from tests.slurm.cluster import Cluster, unavailable

pytestmark = pytest.mark.slurm
EXAMPLE = Path(__file__).parents[2] / "examples" / "glm-5.1-swe-28x8-h200.yaml"
STAND_IN = Path(__file__).with_name("big_stand_in.py")
PROGRAMS = ("vllm", "vllm-router", "mooncake_master", "torchrun")
SETTINGS = (("LAB_GPUS", "8"), ("LAB_CPUS", "128"), ("LAB_PARTITION", "gpu"))
SMI = "\n".join(f"{gpu}, NVIDIA H200, 580.95.05, 143771, 0, 0" for gpu in range(8))
LIMIT = 240.0  # s; a guard against a hang


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Cluster]:
    if why := unavailable():
        pytest.skip(f"no Slurm here: {why}")
    cluster = Cluster(tmp_path / "lab", 28, SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def venv(folder: Path) -> Path:
    """An environment whose programs are the stand-in; its python is this one, but for the orchestrator."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(f"#!{sys.executable} -IS\n" + STAND_IN.read_text())
    (programs / "nvidia-smi").write_text(f"#!/bin/bash\ncat <<'E'\n{SMI}\nE\n")
    (programs / "python").write_text(
        "#!/bin/bash\n"
        f'if [ "${{2:-}}" = prlc.runtime.orchestrator ]; then exec -a python {sys.executable} -IS '
        f'{programs}/orchestrator.py "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    (programs / "orchestrator.py").write_text("import sys\nsys.argv[0] = 'python'\n" + STAND_IN.read_text())
    for program in programs.iterdir():
        program.chmod(0o755)
    return folder


def test_every_step_lands_on_its_planned_node(lab: Cluster, tmp_path: Path) -> None:
    made, found = plan(EXAMPLE.read_text("utf-8"), str(EXAMPLE))
    assert made is not None, found
    assert made.preflight is not None
    # what this one machine has is not what 28 nodes have; ports, GPUs, names, the shared folder are looked at for real
    asked = dataclasses.replace(made.preflight, disk=0, memory=(), versions=(), checkpoint_nodes=())
    write(build(dataclasses.replace(made, preflight=asked)), tmp_path / "bundle")
    began = time.monotonic()
    environment = {"PRLC_VENV": str(venv(tmp_path / "venv")), "PRLC_RUN_DIR": str(tmp_path / "run")}
    job = lab.submit(tmp_path / "bundle", environment)
    state = lab.wait(job, LIMIT)
    seconds = time.monotonic() - began
    output = (tmp_path / "bundle" / f"{made.name}-{job}.out").read_text()
    bad = [
        f"{log.stem}: {line}"
        for log in sorted(tmp_path.glob("run/attempts/1/logs/*.log"))
        for line in log.read_text().splitlines()
        if "NOT AS PLANNED" in line
    ]
    assert state == "COMPLETED", "\n".join([*bad[:5], output[-3000:]])
    seen = {path.name: path.read_text() for path in (tmp_path / "run" / "seen").iterdir()}
    planned = {
        f"{role.name}-{endpoint.index}": f"n{endpoint.node + 1:02d}"
        for role in made.topology.roles
        for endpoint in role.endpoints
    }
    assert seen == planned
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("run/attempts/1/preflight/node-*.json")]
    assert len(reports) == made.topology.nodes
    assert all(report["problems"] == [] for report in reports)
    assert lab.node_states() == ["idle"] * 28
    print(f"{len(seen)} processes on {len(reports)} nodes: {seconds:.0f} s")
    assert seconds < LIMIT
