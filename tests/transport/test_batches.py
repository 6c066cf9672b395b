"""Batches survive the disk, half ones are not seen, bad ones are refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from prlc.runtime.ops.files import complete_numbers, mark_complete
from prlc.runtime.trainer.checkpoint import retire_checkpoints
from prlc.runtime.transport.batches import BatchError, read_batch, wait_for_batch, write_batch
from prlc.runtime.transport.policies import newest_policy, retire_policies
from prlc.runtime.transport.retire import retire_batches

from tests.trainer.samples import make_batch


def test_round_trip(tmp_path: Path) -> None:
    batch = make_batch(2)
    write_batch(tmp_path / "step_00000002", batch)
    again = read_batch(tmp_path / "step_00000002")
    for name in (
        "tokens",
        "loss_mask",
        "logprobs",
        "advantages",
        "versions",
        "routed_experts",
        "routed_valid",
    ):
        assert np.array_equal(getattr(again, name), getattr(batch, name)), name
        assert getattr(again, name).dtype == getattr(batch, name).dtype, name
    assert isinstance(again.routed_experts, np.memmap)
    assert again.meta["temperature"] == 1.0
    assert again.samples == batch.samples
    with pytest.raises(FileExistsError):
        write_batch(tmp_path / "step_00000002", batch)


def test_incomplete_is_not_read(tmp_path: Path) -> None:
    write_batch(tmp_path / "step_00000001", make_batch(1))
    (tmp_path / "step_00000001" / "COMPLETE").unlink()
    with pytest.raises(FileNotFoundError):
        read_batch(tmp_path / "step_00000001")
    with pytest.raises(TimeoutError):
        wait_for_batch(tmp_path / "step_00000001", 0.05, lambda: False, 0.01)
    assert not wait_for_batch(tmp_path / "step_00000001", 60, lambda: True)


def test_misfits_are_named(tmp_path: Path) -> None:
    batch = make_batch(1)
    batch.rewards = batch.rewards[1:]
    batch.logprobs = batch.logprobs[1:]
    with pytest.raises(BatchError, match=r"logprobs.*rewards"):
        write_batch(tmp_path / "b", batch)


def test_policies_retire_but_protected_stay(tmp_path: Path) -> None:
    assert newest_policy(tmp_path) == 0
    for version in range(1, 7):
        (tmp_path / f"step_{version:08d}").mkdir()
        mark_complete(tmp_path / f"step_{version:08d}")
    assert retire_policies(tmp_path, 2, {3}) == [1, 2, 4]
    assert newest_policy(tmp_path) == 6


def steps(folder: Path, numbers: list[int]) -> Path:
    for number in numbers:
        path = folder / f"step_{number:08d}"
        path.mkdir(parents=True)
        (path / "data").write_text("x")
        mark_complete(path)
    return folder


def test_batches_stay_that_a_kept_checkpoint_would_train(tmp_path: Path) -> None:
    batches = steps(tmp_path / "batches", [1, 2, 3, 4, 5, 6])
    assert retire_batches(batches, tmp_path / "checkpoints") == []
    checkpoints = steps(tmp_path / "checkpoints", [2, 4])
    (checkpoints / "step_00000006").mkdir()  # one in writing does not count
    assert retire_batches(batches, checkpoints) == [1, 2]
    assert list(complete_numbers(batches)) == [3, 4, 5, 6]
    retire_checkpoints(checkpoints, 1)
    assert list(complete_numbers(checkpoints)) == [4]
    assert retire_batches(batches, checkpoints) == [3, 4]
    steps(checkpoints, [8])
    retire_checkpoints(checkpoints, 1)
    assert retire_batches(batches, checkpoints) == [5]  # the newest stays
    assert sorted(path.name for path in batches.iterdir()) == ["step_00000006"]


@pytest.mark.parametrize("point", ["rename", "fsync", "first file", "last file"])
def test_a_kill_while_batches_go_leaves_none_half_there(tmp_path: Path, point: str) -> None:
    """A process of its own kills itself at each point; what is left is a whole batch or none, and goes next time."""
    batches = steps(tmp_path / "batches", [1, 2, 3])
    checkpoints = steps(tmp_path / "checkpoints", [2])
    script = f"""
import os, shutil, signal
from pathlib import Path
from prlc.runtime.transport import retire
def die(*args, **named):
    os.kill(os.getpid(), signal.SIGKILL)
def half(path, **named):
    os.unlink(sorted(Path(path).iterdir())[{0 if point == "first file" else 1}])
    die()
point = {point!r}
if point == "rename":
    retire.os.replace = die
elif point == "fsync":
    retire.fsync_folder = die
else:
    shutil.rmtree = half
retire.retire_batches(Path({str(batches)!r}), Path({str(checkpoints)!r}))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == -signal.SIGKILL
    left = list(complete_numbers(batches))
    assert left == ([1, 2, 3] if point == "rename" else [2, 3])
    for number in left:
        assert (batches / f"step_{number:08d}" / "data").read_text() == "x"
    assert retire_batches(batches, checkpoints) == left[:-1]
    assert sorted(path.name for path in batches.iterdir()) == ["step_00000003"]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_replay_rows_are_read_sample_by_sample(tmp_path: Path, kind: type[np.generic]) -> None:
    """Of 60 MiB or more of rows, one sample's are read."""
    batch = make_batch(1)
    tokens = len(batch.tokens)
    shape = (tokens, 2**26 // tokens // 8, 8)
    batch.routed_experts = np.random.default_rng(0).integers(0, 256, shape).astype(kind)
    write_batch(tmp_path / "b", batch)
    script = """
import re, sys
from pathlib import Path
from prlc.runtime.transport.batches import read_batch
def resident():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = resident()
batch = read_batch(Path(sys.argv[1]))
low, high = batch.sample_offsets[3:5]
sys.stdout.buffer.write(batch.routed_experts[low:high].tobytes())
grown = resident() - before
assert grown < batch.routed_experts.nbytes / 2, (grown, batch.routed_experts.nbytes)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    low, high = batch.sample_offsets[3:5]
    assert done.stdout == batch.routed_experts[low:high].tobytes()
