"""Training batches as folders: batch.safetensors, meta.json and, when whole, COMPLETE."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prlc.runtime.ops.files import is_complete, publish_folder
from safetensors import safe_open
from safetensors.numpy import save_file

TENSORS = "batch.safetensors"
META = "meta.json"
ROUTED = "routed_experts"
_ROUTED_DTYPES: dict[str, type[np.generic]] = {"U8": np.uint8, "U16": np.uint16}
_DTYPES: dict[str, type[np.generic]] = {
    "tokens": np.int32,
    "loss_mask": np.uint8,
    "logprobs": np.float32,
    "advantages": np.float32,
    "versions": np.int32,
    "sample_offsets": np.int64,
    "rewards": np.float32,
}


class BatchError(ValueError):
    """A batch whose arrays do not fit together."""


@dataclass
class Batch:
    """One batch, samples laid end to end; T tokens, S samples. See the run protocol for each array.

    `meta` holds at least `step` and `temperature` (the sampling temperature of the logprobs).
    """

    tokens: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    versions: NDArray[np.int32]
    sample_offsets: NDArray[np.int64]
    rewards: NDArray[np.float32]
    routed_experts: NDArray[Any] | None = None
    routed_valid: NDArray[np.uint8] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.sample_offsets) - 1

    def lengths(self) -> list[int]:
        """Tokens of each sample."""
        return [int(n) for n in np.diff(self.sample_offsets)]

    def check(self) -> None:
        """Raise BatchError with every misfit at once."""
        problems = []
        tokens = len(self.tokens)
        for name in ("loss_mask", "logprobs", "advantages", "versions"):
            if getattr(self, name).shape != (tokens,):
                problems.append(f"{name} has shape {getattr(self, name).shape}, tokens {tokens}")
        offsets = self.sample_offsets
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) <= 0).any():
            problems.append(f"sample_offsets must rise from 0 to {tokens}")
        if len(self.rewards) != len(offsets) - 1:
            problems.append(f"{len(self.rewards)} rewards for {len(offsets) - 1} samples")
        if (self.routed_experts is None) != (self.routed_valid is None):
            problems.append("routed_experts and routed_valid go together")
        if self.routed_experts is not None and self.routed_valid is not None:
            if self.routed_experts.ndim != 3 or len(self.routed_experts) != tokens:
                problems.append(f"routed_experts has shape {self.routed_experts.shape}, tokens {tokens}")
            if self.routed_experts.dtype not in (np.uint8, np.uint16):
                problems.append(f"routed_experts is {self.routed_experts.dtype}, not uint8 or uint16")
            if self.routed_valid.shape != (tokens,):
                problems.append(f"routed_valid has shape {self.routed_valid.shape}, tokens {tokens}")
        if problems:
            raise BatchError("; ".join(problems))


def write_batch(folder: Path, batch: Batch) -> None:
    """Write a batch under its final name, whole or not at all.

    Raises BatchError, FileExistsError where a complete batch is there already, OSError.
    """
    batch.check()
    tensors = {name: np.ascontiguousarray(getattr(batch, name), dtype) for name, dtype in _DTYPES.items()}
    if batch.routed_experts is not None and batch.routed_valid is not None:
        tensors["routed_experts"] = np.ascontiguousarray(batch.routed_experts)
        tensors["routed_valid"] = np.ascontiguousarray(batch.routed_valid, np.uint8)
    folder = Path(folder)
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file(tensors, str(temporary / TENSORS))
    shapes = {name: list(value.shape) for name, value in tensors.items()}
    meta = {**batch.meta, "samples": batch.samples, "tokens": len(batch.tokens), "shapes": shapes}
    (temporary / META).write_text(json.dumps(meta, indent=1) + "\n")
    publish_folder(temporary, folder)


def read_batch(folder: Path) -> Batch:
    """Read a complete batch; its replay rows, most of its bytes, are mapped, so that a rank reads those of its samples.

    Raises FileNotFoundError where COMPLETE is missing, BatchError, OSError.
    """
    folder = Path(folder)
    if not is_complete(folder):
        raise FileNotFoundError(f"{folder} is not complete")
    with safe_open(folder / TENSORS, "np") as opened:
        names = set(opened.keys())
        arrays = {name: opened.get_tensor(name) for name in names - {ROUTED}}
    if ROUTED in names:
        arrays[ROUTED] = _mapped(folder / TENSORS, ROUTED)
    missing = sorted(set(_DTYPES) - set(arrays))
    if missing:
        raise BatchError(f"{folder / TENSORS} lacks {', '.join(missing)}")
    fields = {name: arrays[name] for name in (*_DTYPES, ROUTED, "routed_valid") if name in arrays}
    batch = Batch(**fields, meta=json.loads((folder / META).read_text()))
    batch.check()
    return batch


def _mapped(path: Path, name: str) -> NDArray[Any]:
    """One tensor of a safetensors file, read where it is touched. Raises BatchError on another type than unsigned."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))[name]
    if entry["dtype"] not in _ROUTED_DTYPES:
        raise BatchError(f"{name} is {entry['dtype']}, not U8 or U16")
    start = 8 + size + entry["data_offsets"][0]
    return np.memmap(path, _ROUTED_DTYPES[entry["dtype"]], "r", start, tuple(entry["shape"]))


def wait_for_batch(folder: Path, deadline: float, stop: Callable[[], bool], poll: float = 0.05) -> bool:
    """Wait until the batch is complete: True; False when `stop()` says so first.

    `deadline` and `poll` in seconds. Raises TimeoutError when the deadline passes.
    """
    end = time.monotonic() + deadline
    while not is_complete(folder):
        if stop():
            return False
        if time.monotonic() > end:
            raise TimeoutError(f"no batch at {folder} within {deadline:g} s")
        time.sleep(poll)
    return True
