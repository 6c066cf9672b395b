"""The base checkpoint: present, whole, of the planned model, and with scales where its weights are FP8.

A safetensors file is eight bytes with the length of a JSON header, the header, then the data (format of the
safetensors library); so a torn download shows without reading any weights.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prlc.runtime.preflight.probe import Finding, Where

SHOWN = 3
LARGEST_HEADER = 100_000_000  # bytes; the library's own limit


def folder(where: Where) -> Path | None:
    """Where the checkpoint lies: a folder, or the newest snapshot of a hub id in the cache; None if there is none."""
    model = where.config.model
    for path in (Path(model), where.paths.root / model):
        if path.is_dir():
            return path
    cache = (
        os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", Path.home() / ".cache/huggingface")) / "hub"
    )
    snapshots = Path(cache) / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def probe(where: Where) -> Iterator[Finding]:
    """Nothing on nodes that do not read it."""
    if where.node not in where.config.checkpoint_nodes:
        return
    path = folder(where)
    if path is None:
        yield Finding("checkpoint", f"{where.config.model} is neither a folder nor in this node's hub cache")
        return
    try:
        config = json.loads((path / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        yield Finding("checkpoint", f"{path}/config.json cannot be read: {error}")
        return
    said = {config.get("model_type"), (config.get("text_config") or {}).get("model_type")} - {None}
    if where.config.model_type not in said:
        is_a = ", ".join(sorted(said)) or "model without model_type"
        yield Finding("checkpoint", f"{path} is a {is_a}, the plan is for {where.config.model_type}")
    try:
        names = shards(path)
    except (OSError, ValueError, KeyError) as error:
        yield Finding("checkpoint", f"{path}: {error}")
        return
    broken: list[str] = []
    tensors: dict[str, Any] = {}
    for name in names:
        try:
            tensors |= header(path / name)
        except (OSError, ValueError) as error:
            broken.append(f"{name}: {error}")
    for text in broken[:SHOWN]:
        yield Finding("checkpoint", f"{path}/{text}")
    if len(broken) > SHOWN:
        yield Finding("checkpoint", f"{path}: {len(broken) - SHOWN} more files are broken")
    if not broken:
        yield from scales(config, tensors)


def shards(path: Path) -> list[str]:
    """Names of the weight files. Raises OSError, ValueError, KeyError where there are none."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        return sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    found = sorted(file.name for file in path.glob("*.safetensors"))
    if not found:
        raise FileNotFoundError("no model.safetensors.index.json and no *.safetensors")
    return found


def header(path: Path) -> dict[str, Any]:
    """Tensors of one file by name. Raises OSError, ValueError where the file is torn."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise ValueError(f"{size} bytes are no safetensors file")
        length = struct.unpack("<Q", first)[0]
        if length > min(LARGEST_HEADER, size - 8):
            raise ValueError("its header is not whole")
        tensors = json.loads(file.read(length))
    tensors.pop("__metadata__", None)
    end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    if end != size:
        raise ValueError(f"{size} bytes, its header says {end}: the file is not whole")
    return dict(tensors)


def scales(config: dict[str, Any], tensors: dict[str, Any]) -> Iterator[Finding]:
    """Each FP8 weight has a scale for each block, as quantization_config says."""
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    eight = {name: tensor for name, tensor in tensors.items() if tensor["dtype"] == "F8_E4M3"}
    if not eight:
        return
    if not (isinstance(block, list) and len(block) == 2):
        yield Finding("checkpoint", "FP8 weights without quantization_config.weight_block_size in config.json")
        return
    wrong = []
    for name, tensor in eight.items():
        scale = tensors.get(f"{name}_scale_inv")
        wanted = [-(-size // part) for size, part in zip(tensor["shape"], block, strict=False)]
        if scale is None or scale["shape"] != wanted:
            wrong.append(f"{name} wants {name}_scale_inv {wanted}, found {scale and scale['shape']}")
    for text in wrong[:SHOWN]:
        yield Finding("checkpoint", text)
    if len(wrong) > SHOWN:
        yield Finding("checkpoint", f"{len(wrong) - SHOWN} more FP8 weights without their scales")
