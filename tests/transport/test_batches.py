"""Batches survive the disk, half ones are not seen, bad ones are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prlc.runtime.ops.files import mark_complete
from prlc.runtime.transport.batches import BatchError, read_batch, wait_for_batch, write_batch
from prlc.runtime.transport.policies import newest_policy, retire_policies

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
