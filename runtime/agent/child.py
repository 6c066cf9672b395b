"""One command in a process group of its own, with nothing of it left behind when it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that it can reap them."""
    _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Get a signal when the parent ends: nothing must hold devices and ports once its launcher was killed outright.

    Linux counts the thread that forked as the parent (prctl(2)), so the receiver looks whether the process is gone.
    """
    _PRCTL(PR_SET_PDEATHSIG, number, 0, 0, 0)


class Child:
    """A running command. Its output is appended to `log`; its stdin is closed."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """Start it. Raises OSError where the program cannot be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.pid = self._process.pid

    def status(self) -> int | None:
        """Exit status as a shell counts it (128 + signal), or None while it runs."""
        code = self._process.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def stop(self, grace: float, interrupted: Callable[[], bool] = lambda: False) -> None:
        """TERM to the whole group, KILL to what is left after `grace` seconds or once `interrupted()`."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self._group_lives() and time.monotonic() < deadline and not interrupted():
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _group_lives(self) -> bool:
        if self._process.poll() is not None:  # Popen keeps the leader's status; reap only its orphans
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self.pid, os.WNOHANG)[0]:
                    pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True
