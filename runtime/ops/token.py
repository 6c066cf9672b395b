"""The run's token: made at job start, kept in a 0600 file of the attempt, sent as `Authorization: Bearer`.

The launcher makes one for each attempt, so it is also the attempt's identity: a server of another run, or of an
earlier attempt, refuses it. It stands in no environment variable and on no command line, where others could read it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from prlc.runtime.ops.run_paths import RunPaths

BYTES = 32


def make(path: Path) -> None:
    """Write a new token that its owner alone can read. Raises FileExistsError, OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(BYTES))
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> str:
    """The token in a file. Raises OSError; PermissionError where others may read or change it; ValueError if empty."""
    with open(path, encoding="ascii") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(f"{path} must be for its owner alone (mode 600), it has {stat.S_IMODE(mode):o}")
        token = file.read().strip()
    if not token:
        raise ValueError(f"{path} holds no token")
    return token


def current() -> str:
    """The token of this process's run and attempt. Raises KeyError (variable not set) and what `read` raises."""
    return read(RunPaths.from_environment().token(int(os.environ["PRLC_ATTEMPT"])))


def headers(token: str) -> dict[str, str]:
    """HTTP headers that carry a token."""
    return {"Authorization": f"Bearer {token}"}


def carried(header: str, token: str) -> bool:
    """True where an Authorization header carries the token; takes the same time for every wrong one."""
    return hmac.compare_digest(header.encode(), f"Bearer {token}".encode())
