"""What the files of a run say about it: over, failed, or taken over by a newer attempt."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prlc.runtime.ops.files import write_atomic
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Topology

Verdict = Literal["running", "done", "failed", "superseded", "stopping"]


@dataclass(frozen=True)
class RunState:
    """One attempt's view of its run. Reads files only; `fail` writes FAILED, the first writer wins."""

    paths: RunPaths
    topology: Topology
    attempt: int

    def verdict(self) -> Verdict:
        """superseded: a newer attempt has begun; failed: FAILED is there; done: all finishers are done;
        stopping: the launcher wants it over.
        """
        if self._newest_attempt() > self.attempt:
            return "superseded"
        if self.paths.failed.exists():
            return "failed"
        finishing = [role.name for role in self.topology.roles if role.finishes]
        if finishing and all(self.role_done(name) for name in finishing):
            return "done"
        return "stopping" if self.paths.stop(self.attempt).exists() else "running"

    def role_done(self, role: str) -> bool:
        """True when a finishing role has said that it ended well."""
        return self.paths.done(role).exists()

    def fail(self, cause: str, **fields: Any) -> None:
        """Say why the run failed; a cause that is already there stays. Raises OSError."""
        record = {"cause": cause, "attempt": self.attempt, "time": round(time.time(), 3), **fields}
        partial = self.paths.root / f".FAILED.{os.uname().nodename}.{os.getpid()}"
        write_atomic(partial, json.dumps(record, indent=1) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(partial, self.paths.failed)
        partial.unlink()

    def failure(self) -> str:
        """The cause in FAILED, or why it cannot be read."""
        try:
            return str(json.loads(self.paths.failed.read_text("utf-8"))["cause"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"unreadable {self.paths.failed.name}: {error}"

    def _newest_attempt(self) -> int:
        try:
            return int(Path(os.readlink(self.paths.root / "attempts" / "latest")).name)
        except (OSError, ValueError):
            return self.attempt
