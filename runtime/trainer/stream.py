"""Weights to safetensors files with one tensor rounded at a time, so that no second copy of a shard is ever there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.tensor import DTensor

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}
Kind = Callable[[str], torch.dtype]  # what a tensor is written as, by its name


def rounded(value: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """A plain tensor as it is written."""
    return value.detach().to(kind).contiguous()


class RoundingPlanner(DefaultSavePlanner):
    """Rounds each part when its turn to be written comes."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written of `object`, this rank's part of a tensor."""
        return rounded(object, self.kind(write_item.index.fqn))


def save_streamed(path: Path, named: Mapping[str, Any], kind: Kind) -> None:
    """Write the tensors that one process holds whole, byte for byte as safetensors.torch.save_file does.

    Format: an 8-byte little-endian length, a JSON header padded to 8 bytes, then the tensors, those of wider dtypes
    first and by name among equals. Source: safetensors, src/tensor.rs, `prepare`. Raises OSError, KeyError on
    another dtype than float32 or bfloat16.
    """
    order = sorted(named, key=lambda name: (-kind(name).itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in order:
        end = at + named[name].numel() * kind(name).itemsize
        header[name] = {"dtype": DTYPES[kind(name)], "shape": list(named[name].shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            value = named[name]
            plain = value.to_local() if isinstance(value, DTensor) else value
            file.write(rounded(plain, kind(name)).cpu().flatten().view(torch.uint8).numpy())
