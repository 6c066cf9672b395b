"""Events and metrics of one process: JSON lines, appended by their one writer, readable while it runs.

A line is written by one write call on a file opened for appending, so a reader that meets a half line has met
the last one and waits. After a crash a torn last line stays torn; the next life starts on a line of its own.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _Lines:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._handle).st_size
        self._torn = bool(size) and os.pread(self._handle, 1, size - 1) != b"\n"

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain) + "\n"
        content = b"\n" * self._torn + line.encode()
        written = os.write(self._handle, content)
        self._torn = self._torn if written == 0 else written < len(content)
        if written < len(content):  # a full disk takes a part without a word
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        os.close(self._handle)


def _plain(value: Any) -> Any:
    """Numbers of array libraries and paths, without importing those libraries."""
    if hasattr(value, "item"):
        return value.item()
    return str(value)


class Events:
    """events/<role>-<index>.jsonl of a run: what happened, when, in which attempt."""

    def __init__(self, run_dir: Path | str, role: str, index: int, attempt: int | None = None) -> None:
        self._lines = _Lines(Path(run_dir) / "events" / f"{role}-{index}.jsonl")
        self._role, self._index = role, index
        self._attempt = int(os.environ.get("PRLC_ATTEMPT", "1")) if attempt is None else attempt

    def emit(self, name: str, **fields: Any) -> None:
        """Append one event. `time` is seconds since 1970, UTC. Raises OSError, e.g. on a full disk."""
        self._lines.append(
            {
                "time": round(time.time(), 3),
                "event": name,
                "role": self._role,
                "index": self._index,
                "attempt": self._attempt,
                **fields,
            }
        )

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class Metrics:
    """metrics/<role>-<index>.jsonl of a run: numbers by step; of a repeated step the last line counts."""

    def __init__(self, run_dir: Path | str, role: str, index: int, attempt: int | None = None) -> None:
        self._lines = _Lines(Path(run_dir) / "metrics" / f"{role}-{index}.jsonl")
        self._attempt = int(os.environ.get("PRLC_ATTEMPT", "1")) if attempt is None else attempt

    def log(self, step: int, **values: Any) -> None:
        """Append the values of one step. Raises OSError."""
        self._lines.append({"step": step, "time": round(time.time(), 3), "attempt": self._attempt, **values})

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def read_lines(path: Path | str) -> Iterator[dict[str, Any]]:
    """The records of an events or metrics file; torn lines are skipped, a missing file has none."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def read_metrics(path: Path | str) -> dict[int, dict[str, Any]]:
    """Metrics by step, the last line of a step winning: what a resumed run logged again replaces the old."""
    return {record["step"]: record for record in read_lines(path) if "step" in record}
