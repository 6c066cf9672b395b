"""Which published policies are there, and which may go."""

from __future__ import annotations

from pathlib import Path

from prlc.runtime.ops.files import complete_numbers
from prlc.runtime.transport.retire import remove_steps


def newest_policy(folder: Path) -> int:
    """Newest complete policy version below `folder`; 0, the base model, where none is published."""
    return max(complete_numbers(folder), default=0)


def retire_policies(folder: Path, keep: int, protected: set[int]) -> list[int]:
    """Delete published versions but the newest `keep` and the protected ones; answers those deleted. Raises OSError."""
    versions = list(complete_numbers(folder))
    gone = [version for version in versions[: max(0, len(versions) - keep)] if version not in protected]
    remove_steps(folder, gone)
    return gone
