"""Publishing tensor by tensor writes the bytes that rounding all shards first would write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runtime
ROOT = Path(__file__).resolve().parents[2]
KINDS = ("glm4_moe", "gpt_oss")  # a bias that stays float32; experts stored transposed


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.trainer.families import write

    folder = tmp_path_factory.mktemp("publish")
    for kind in KINDS:
        write(kind, folder / kind)
    return folder


@pytest.mark.parametrize("world", [1, 2])
def test_streamed_files_are_the_same_and_one_tensor_is_there_at_a_time(bases: Path, world: int) -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", str(world), "-m", "tests.trainer.publish_worker", str(bases), ",".join(KINDS),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for kind in KINDS:
        ours, plain = bases / f"{kind}_{world}", bases / f"{kind}_{world}_at_once"
        files = sorted(path.name for path in plain.iterdir() if path.is_file())
        assert len([name for name in files if name.endswith(".safetensors")]) == world
        for name in files:
            assert (ours / name).read_bytes() == (plain / name).read_bytes(), (kind, name)
        for rank in range(world):
            most, largest, whole = json.loads((bases / f"{kind}_{world}_{rank}.json").read_text())
            assert most == largest < whole / 3, (kind, rank)
