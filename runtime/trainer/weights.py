"""Weights in from and out to Hugging Face folders, without gathering the model on one rank."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from prlc.runtime.ops.files import is_complete, publish_folder
from prlc.runtime.trainer.model import Trainable, read_config
from prlc.runtime.trainer.stream import Kind, RoundingPlanner, save_streamed
from safetensors import safe_open
from torch.distributed.checkpoint import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
    QuantizedHuggingFaceStorageReader,
)
from torch.distributed.checkpoint._consolidate_hf_safetensors import (
    consolidate_safetensors_files_on_every_rank,
)

INDEX = "model.safetensors.index.json"
IGNORED = (".rotary_emb.inv_freq", "_scale_inv")
COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
    "generation_config.json",
)


def load_weights(model: Trainable, folder: Path) -> None:
    """Fill the model from safetensors, each rank reading its own parts. Raises on tensors missing or left over."""
    state = model.module.state_dict()
    named = model.adapter.to_hf(state)
    _check_names(named, folder, len(model.config.layers))
    dcp.load(named, storage_reader=_reader(Path(folder)))


def _reader(folder: Path) -> Any:
    """Reads weights as they are, or those in fp8 blocks with their scales multiplied in."""
    if "quantization_config" not in read_config(folder):
        return HuggingFaceStorageReader(str(folder))
    if not (folder / INDEX).is_file():
        raise ValueError(f"{folder}: weights in fp8 are read by {INDEX}, which is missing")
    return QuantizedHuggingFaceStorageReader(str(folder), target_dtype=torch.float32, block_size=128)


def _check_names(named: dict[str, Any], folder: Path, layers: int) -> None:
    """Raise ValueError where names differ, but for layers past the last: those predict further tokens (MTP)."""
    present = checkpoint_names(folder)
    missing = sorted(set(named) - present)
    templates = {re.sub(r"\d+", "{}", name) for name in named}
    unknown = sorted(
        name
        for name in present
        if re.sub(r"\d+", "{}", name) not in templates
        and not name.endswith(IGNORED)
        and int((re.findall(r"^model\.layers\.(\d+)\.", name) or [0])[0]) < layers
    )
    if missing or unknown:
        raise ValueError(f"weights of {folder} do not fit: missing {missing[:5]}, unknown {unknown[:5]}")


def checkpoint_names(folder: Path) -> set[str]:
    """Names of all tensors of a folder's safetensors files, from the index where there is one."""
    index = Path(folder) / INDEX
    if index.is_file():
        return set(json.loads(index.read_text())["weight_map"])
    names: set[str] = set()
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as opened:
            names.update(opened.keys())
    return names


def publish(model: Trainable, base: Path, final: Path, dtype: str) -> bool:
    """Write a complete Hugging Face folder at `final`; all ranks call it. False: it was complete already.

    config.json and tokenizer files come from `base`. `dtype`: float32 or bfloat16. On the device one rounded tensor is
    there at a time; in host memory, those of one of the `world` files. Raises OSError.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    present = [is_complete(final) if rank == 0 else None]
    dist.broadcast_object_list(present, src=0)
    if present[0]:
        return False
    temporary = final.with_name(f".{final.name}.partial")
    if rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    dist.barrier()
    named = model.adapter.to_hf(model.module.state_dict())  # views: nothing is copied

    def kind(name: str) -> torch.dtype:
        found: torch.dtype = named[name].dtype if model.adapter.kept_exact(name) else getattr(torch, dtype)
        return found

    if world == 1:
        save_streamed(temporary / "model.safetensors", named, kind)
    else:
        _write_shared(named, kind, temporary, world)
    if rank == 0:
        _copy_rest(Path(base), temporary, dtype)
        publish_folder(temporary, final)
    dist.barrier()
    return True


def _write_shared(named: dict[str, Any], kind: Kind, folder: Path, world: int) -> None:
    """Every rank writes its parts; then they are joined into `world` files with an index."""
    names: list[Any] = [None] * world
    dist.all_gather_object(names, list(named))
    index = {name: i % world + 1 for i, name in enumerate(sorted(set().union(*names)))}
    parts = folder / "parts"
    writer = HuggingFaceStorageWriter(
        path=str(parts), save_distributed=True, fqn_to_index_mapping=index, enable_consolidation=False
    )
    dcp.save(named, storage_writer=writer, planner=RoundingPlanner(kind))
    consolidate_safetensors_files_on_every_rank(
        input_dir=str(parts), output_dir=str(folder), fqn_to_index_mapping=index, num_threads=1
    )
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(parts)


def _copy_rest(base: Path, folder: Path, dtype: str) -> None:
    config = json.loads((base / "config.json").read_text())
    for outdated in ("torch_dtype", "quantization_config"):
        config.pop(outdated, None)
    config["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for pattern in COPIED:
        for path in sorted(base.glob(pattern)):
            shutil.copy(path, folder / path.name)
