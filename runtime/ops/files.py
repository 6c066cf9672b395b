"""Files that appear whole or not at all, on a filesystem that all nodes share.

A file appears by write, fsync, rename. A folder is complete only when its file COMPLETE is there, which is
written last. Readers look for complete folders alone, so a writer may die at any point.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

COMPLETE = "COMPLETE"
_NUMBERED = re.compile(r"^(.*?)(\d+)$")


def fsync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write `path` so that readers see the old content or the new, never a part. Raises OSError.

    The temporary name carries host and process, so that two writers never share one.
    """
    path = Path(path)
    content = data.encode() if isinstance(data, str) else data
    partial = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def publish_folder(temporary: Path, final: Path) -> None:
    """Turn a written folder into a complete one under its final name. Raises OSError.

    Every file is fsynced, COMPLETE is written, then one rename. An incomplete folder of an earlier life at
    `final` is removed; a complete one is never replaced (FileExistsError).
    """
    temporary, final = Path(temporary), Path(final)
    if is_complete(final):
        raise FileExistsError(f"{final} is already complete")
    for path in sorted(temporary.rglob("*")):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    write_atomic(temporary / COMPLETE, b"")
    if final.exists():
        shutil.rmtree(final)
    os.replace(temporary, final)
    fsync_folder(final.parent)


def mark_complete(folder: Path) -> None:
    """Write COMPLETE into a folder whose files are already durable. Raises OSError."""
    write_atomic(Path(folder) / COMPLETE, b"")


def is_complete(folder: Path) -> bool:
    """True when the folder's COMPLETE file is there."""
    return (Path(folder) / COMPLETE).is_file()


def complete_numbers(folder: Path, prefix: str = "step_") -> Iterator[int]:
    """Numbers of the complete folders `<prefix><number>`, ascending; none where `folder` does not exist."""
    found = []
    for entry in Path(folder).iterdir() if Path(folder).is_dir() else ():
        match = _NUMBERED.match(entry.name)
        if match and match[1] == prefix and is_complete(entry):
            found.append(int(match[2]))
    yield from sorted(found)


def newest_complete(folder: Path, prefix: str = "step_") -> Path | None:
    """The complete folder `<prefix><number>` with the largest number, or None."""
    best: tuple[int, Path] | None = None
    for entry in Path(folder).iterdir() if Path(folder).is_dir() else ():
        match = _NUMBERED.match(entry.name)
        if match and match[1] == prefix and is_complete(entry) and (best is None or int(match[2]) > best[0]):
            best = (int(match[2]), entry)
    return best[1] if best else None
