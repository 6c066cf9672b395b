"""Numbered folders go away whole: one that is half deleted is never under a name that readers look for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from prlc.runtime.ops.files import complete_numbers, fsync_folder


def remove_steps(folder: Path, steps: Iterable[int]) -> None:
    """Delete folders `step_<number>`, and what an earlier life left half deleted. For their one writer.

    Each is renamed first. A file that cannot be deleted now, as NFS keeps those that a process of this node has
    open, is tried again by the next call. Raises OSError where a folder cannot be renamed.
    """
    folder = Path(folder)
    for left in folder.glob(".step_*.retired"):
        shutil.rmtree(left, ignore_errors=True)
    for step in steps:
        path = folder / f"step_{step:08d}"
        away = folder / f".{path.name}.retired"
        os.replace(path, away)
        fsync_folder(folder)  # or a crash could bring back the name without the files
        shutil.rmtree(away, ignore_errors=True)


def retire_batches(batches: Path, checkpoints: Path) -> list[int]:
    """Delete the batches that no kept checkpoint would train again; answers those deleted. Raises OSError.

    A run resumes from a complete checkpoint, so all batches after the oldest one stay. The newest batch stays too:
    it says which state of the orchestrator is the last.
    """
    oldest = min(complete_numbers(checkpoints), default=0)
    gone = [step for step in list(complete_numbers(batches))[:-1] if step <= oldest]
    remove_steps(batches, gone)
    return gone
