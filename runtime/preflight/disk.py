"""The run's folder: room, renames and links that behave, and one view of it on all nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from prlc.runtime.ops.files import write_atomic
from prlc.runtime.preflight.probe import Finding, Where

GIB = 2**30
POLL = 0.5  # s


def space(where: Where) -> Iterator[Finding]:
    """Free bytes, and what the run has already written, against what it will have written."""
    info = os.statvfs(where.paths.root)
    free, wanted = info.f_bavail * info.f_frsize, where.config.disk
    if free >= wanted:
        return
    there = sum(file.stat().st_blocks * 512 for file in where.paths.root.rglob("*") if file.is_file())
    if free + there < wanted:
        yield Finding(
            "disk", f"{free / GIB:.1f} GiB free at {where.paths.root}, the run writes up to {wanted / GIB:.1f} in all"
        )


def renames(where: Where) -> Iterator[Finding]:
    """A rename replaces a file, and a second hard link to a taken name is refused: the run's files rest on both."""
    folder = where.paths.preflight(where.attempt)
    name, other = folder / f"rename-{where.node}", folder / f"link-{where.node}"
    write_atomic(name, "old")
    write_atomic(name, "new")
    if name.read_text() != "new":
        yield Finding("disk", f"{folder}: a rename does not replace a file")
    os.link(name, other)
    try:
        os.link(name, other)
        yield Finding("disk", f"{folder}: a hard link replaces a file")
    except FileExistsError:
        pass
    for path in (name, other):
        path.unlink()


def shared(where: Where) -> Iterator[Finding]:
    """Node 0 sees a file of every node, and every node sees node 0's."""
    write_atomic(_hello(where, where.node), where.address)
    missing = list(range(len(where.addresses))) if where.node == 0 else [0]
    end = time.monotonic() + where.config.shared_deadline - 5
    while True:
        os.listdir(where.paths.preflight(where.attempt))  # NFS looks again
        missing = [node for node in missing if not _hello(where, node).exists()]
        if not missing:
            return
        if time.monotonic() >= end:
            nodes = ", ".join(f"{node} ({where.addresses[node]})" for node in missing)
            yield Finding(
                "shared", f"no file of node {nodes} is seen at {where.paths.root}: is it on a shared filesystem?"
            )
            return
        time.sleep(POLL)


def clock(where: Where) -> Iterator[Finding]:
    """This node's clock against that of the filesystem's server."""
    path = where.paths.preflight(where.attempt) / f"clock-{where.node}"
    before = time.time()
    write_atomic(path, "")
    stamp, after = path.stat().st_mtime, time.time()
    path.unlink()
    off = max(before - stamp, stamp - after, 0.0)
    if off > where.config.clock_tolerance:
        yield Finding(
            "clock", f"this node's clock is {off:.1f} s off the filesystem's: its log lines will mislead", "warning"
        )


def _hello(where: Where, node: int) -> Path:
    return where.paths.preflight(where.attempt) / f"hello-{node}"
