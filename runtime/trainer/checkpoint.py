"""Checkpoints for resume: model and optimizer by DCP, counters in trainer.json, COMPLETE last."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from prlc.runtime.ops.files import complete_numbers, newest_complete, publish_folder
from prlc.runtime.transport.retire import remove_steps
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

STATE = "trainer.json"


def save_checkpoint(final: Path, module: Any, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Write a checkpoint; all ranks call it. One that is complete already is left alone. Raises OSError."""
    rank = dist.get_rank()
    present = [(final / "COMPLETE").exists() if rank == 0 else None]
    dist.broadcast_object_list(present, src=0)
    if present[0]:
        return
    temporary = final.with_name(f".{final.name}.partial")
    if rank == 0:
        for left in final.parent.glob(".step_*.partial"):  # of any step: a stop may have asked for one that is not due
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir(parents=True)
    dist.barrier()
    model_state, optimizer_state = get_state_dict(module, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=str(temporary))
    if rank == 0:
        (temporary / STATE).write_text(json.dumps(state) + "\n")
        publish_folder(temporary, final)
    dist.barrier()


def load_newest(folder: Path, module: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Load the newest complete checkpoint, on any layout; its trainer.json, None where there is none."""
    found = [str(newest_complete(folder) or "") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        return None
    model_state, optimizer_state = get_state_dict(module, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=found[0])
    set_state_dict(module, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    state: dict[str, Any] = json.loads((Path(found[0]) / STATE).read_text())
    return state


def retire_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` complete checkpoints; 0 keeps all. Raises OSError."""
    steps = list(complete_numbers(folder))
    remove_steps(folder, steps[: max(0, len(steps) - keep)] if keep else [])
