"""Who listens on a TCP port of this machine, read from /proc (Linux; one network namespace)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"  # include/net/tcp_states.h
PROC = Path("/proc")


@dataclass(frozen=True)
class Holder:
    """A process that listens on a port."""

    pid: int
    session: int
    user: str
    command: str
    run: str  # PRLC_RUN_DIR of its environment, where it has one and may be read

    def __str__(self) -> str:
        """For people."""
        of = f", of the run in {self.run}" if self.run else ""
        return f"process {self.pid} of {self.user} ({self.command[:120]}){of}"


def sockets(port: int) -> frozenset[str]:
    """Inodes of the sockets that listen on a port, on whatever address."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return frozenset(found)


def holders(port: int) -> Iterator[Holder]:
    """Processes that hold a listening socket of a port; those of other users are invisible without root."""
    wanted = {f"socket:[{inode}]" for inode in sockets(port)}
    if not wanted:
        return
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            mine = any(os.readlink(handle) in wanted for handle in (entry / "fd").iterdir())
            if mine:
                yield _holder(entry)
        except OSError:  # it ended, or is another user's
            continue


def listens(session: int, port: int) -> bool:
    """True where a process of the session listens on the port, e.g. a command or one of its children."""
    return any(holder.session == session for holder in holders(port))


def _holder(entry: Path) -> Holder:
    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    variables = (entry / "environ").read_bytes().split(b"\0")
    run = next((v.partition(b"=")[2] for v in variables if v.startswith(b"PRLC_RUN_DIR=")), b"")
    uid = entry.stat().st_uid
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
    return Holder(int(entry.name), session, user, command, run.decode(errors="replace"))
