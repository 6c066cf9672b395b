"""A spec's container reaches every step of a real job as the options that pyxis takes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import build, write
from prlc.schema.plan import SlurmOptions

from tests.slurm.cluster import Cluster, unavailable
from tests.slurm.miniature import VENV
from tests.templates.plans import plan

OPTIONS = ("--container-image=/images/it's.sqsh", "--container-mounts=/data:/data:ro", "--no-container-mount-home")
FINISHER = (
    "import os, pathlib\n"
    "print([os.environ.get(n) for n in ('TEST_IMAGE', 'TEST_MOUNTS', 'TEST_NO_HOME')])\n"
    "(pathlib.Path(os.environ['PRLC_RUN_DIR']) / 'done' / os.environ['PRLC_ROLE']).touch()"
)


@pytest.mark.slurm
def test_every_step_asks_for_the_image(tmp_path: Path) -> None:
    if why := unavailable():
        pytest.skip(f"no Slurm here: {why}")
    if not (shutil.which("gcc") and Path("/usr/include/slurm/spank.h").exists()):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no gcc, or no headers of Slurm (libslurm-dev)")
    plugin = tmp_path / "container_options.so"
    source = Path(__file__).with_name("container_options.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(plugin), str(source)], check=True, timeout=60)
    cluster = Cluster(tmp_path / "lab", 3, (("LAB_PLUGIN", str(plugin)),))
    try:
        cluster.start()
        it = dataclasses.replace(plan(finisher=FINISHER), slurm=SlurmOptions(options=(("time", "10"),), step=OPTIONS))
        write(build(it), tmp_path / "bundle")
        job = cluster.submit(tmp_path / "bundle", {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(tmp_path / "run")})
        assert cluster.wait(job, 120) == "COMPLETED", next((tmp_path / "bundle").glob("*.out")).read_text()
    finally:
        cluster.stop()
    for role in ("trainer", "orchestrator"):
        said = (tmp_path / "run/attempts/1/logs" / f"{role}-0.log").read_text().strip()
        assert said == str(["/images/it's.sqsh", "/data:/data:ro", "set"])
