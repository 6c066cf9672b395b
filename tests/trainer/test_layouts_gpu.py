"""Two GPUs over NCCL compute what one does: FSDP, replicas, expert and context parallelism, each kind of family."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.runtime, pytest.mark.gpu]
torch = pytest.importorskip("torch")
if torch.cuda.device_count() < 2:
    pytest.skip("needs two GPUs", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss", "glm_moe_dsa"]
LAYOUTS = ["1,2,1,1", "1,2,1,2", "2,1,1,1", "1,1,2,1", "1,1,2,2"]  # dp_replicate, dp_shard, cp, ep


def steps(folder: Path, layout: str, ranks: int) -> Any:
    """Numbers of two steps by family."""
    out = folder / f"{layout}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "tests.trainer.gpu_worker", str(folder), ",".join(KINDS), layout, str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from tests.trainer.families import write

    folder = tmp_path_factory.mktemp("gpu")
    for kind in KINDS:
        write(kind, folder / kind)
    return folder, steps(folder, "1,1,1,1", 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_steps_equal_those_of_one_gpu(base: tuple[Path, Any], layout: str) -> None:
    folder, alone = base
    found = steps(folder, layout, 2)
    for kind in found:
        for mine, theirs in zip(found[kind], alone[kind], strict=True):
            for name in ("loss", "grad_norm", "entropy", "mismatch_kl"):
                print(kind, layout, name, mine[name], theirs[name])
                assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), (kind, name)
