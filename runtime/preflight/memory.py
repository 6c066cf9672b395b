"""Host memory that is available, room in /dev/shm, and the limits of this process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from prlc.runtime.preflight.probe import Finding, Where

GIB = 2**30
FILES = 16384  # open files of a router or an engine with some thousand requests in flight
SHM = 2**28  # bytes that vLLM's and torch's processes need there at least to talk to each other


def available(text: str) -> int:
    """Bytes of MemAvailable in the text of /proc/meminfo. Raises ValueError."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise ValueError("/proc/meminfo has no MemAvailable")


def probe(where: Where) -> Iterator[Finding]:
    """Against what the plan's ledger says that the run takes on this node."""
    wanted = max((need.memory for need in where.config.memory if where.node in need.nodes), default=0)
    there = available(Path("/proc/meminfo").read_text())
    if there < wanted:
        yield Finding("memory", f"{there / GIB:.1f} GiB of host memory available, the plan needs {wanted / GIB:.1f}")
    shm = os.statvfs("/dev/shm")
    if shm.f_bavail * shm.f_frsize < SHM:
        yield Finding("memory", f"/dev/shm has {shm.f_bavail * shm.f_frsize // 2**20} MiB free, {SHM // 2**20} wanted")


def limits(where: Where) -> Iterator[Finding]:
    """Open files; with NICs also locked memory, without which RDMA cannot register buffers."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files not in (resource.RLIM_INFINITY,) and files < FILES:
        yield Finding("limits", f"at most {files} open files (ulimit -Hn), {FILES} wanted", "warning")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if where.config.nics and locked != resource.RLIM_INFINITY:
        yield Finding("limits", f"locked memory is limited to {locked} B (ulimit -l): RDMA needs it unlimited")
