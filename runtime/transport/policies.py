"""Which published policies are there, and which may go."""

from __future__ import annotations

import shutil
from pathlib import Path

from prlc.runtime.ops.files import complete_numbers


def newest_policy(folder: Path) -> int:
    """Newest complete policy version below `folder`; 0, the base model, where none is published."""
    return max(complete_numbers(folder), default=0)


def retire_policies(folder: Path, keep: int, protected: set[int]) -> list[int]:
    """Delete published versions but the newest `keep` and the protected ones; answers those deleted.

    COMPLETE goes first, so that no reader takes a folder that is going away for a whole one. Raises OSError.
    """
    versions = list(complete_numbers(folder))
    gone = [version for version in versions[: max(0, len(versions) - keep)] if version not in protected]
    for version in gone:
        path = folder / f"step_{version:08d}"
        (path / "COMPLETE").unlink(missing_ok=True)
        shutil.rmtree(path)
    return gone
