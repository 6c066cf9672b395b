"""The start of an attempt: `python -m prlc.runtime.agent.attempt` prints its number, or nothing where the run is done.

One attempt of a run at a time. OWNER names the job (or process) that has the run; it may be replaced only when that
job is over, and Slurm is asked, since a job's processes may live on nodes that this one cannot see. Each start is an
attempt with a number of its own; nothing of an earlier one is deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prlc.runtime.ops import token
from prlc.runtime.ops.files import complete_numbers, write_atomic
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.codec import DocumentError, load
from prlc.schema.topology import Topology

SLURM_PATIENCE = 90.0  # s for slurmctld to answer, and for a job that ended to leave COMPLETING: 65 s were seen
SLURM_OVER = {"", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


class Refused(RuntimeError):
    """The run belongs to another job, or it cannot be said whether it does."""


def identity(pid: int) -> dict[str, Any]:
    """Who starts this attempt: the launcher's process on this host, and the Slurm job that it belongs to."""
    me = {"host": socket.gethostname(), "pid": pid, "started": process_start(pid)}
    return {"job": os.environ["SLURM_JOB_ID"], **me} if "SLURM_JOB_ID" in os.environ else me


def process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot (proc(5)), which tells it from a later one; None if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def holder(owner: dict[str, Any], me: dict[str, Any]) -> str | None:
    """None where the owner is over (or is this very job), else who it is. Raises Refused where nobody can tell."""
    job = owner.get("job")
    here = owner.get("host") == me["host"]
    alive = here and process_start(int(owner["pid"])) == owner.get("started") is not None
    if job is not None:
        if job == me.get("job"):  # requeued: the same job, a new life; or two launchers in one interactive job
            return f"process {owner['pid']} on {owner['host']}" if alive else None
        state = slurm_state(str(job))
        return None if state in SLURM_OVER else f"job {job} ({state})"
    if not here:
        raise Refused(
            f"process {owner.get('pid')} on {owner.get('host')} started this run, and from here nobody can tell "
            "whether it still lives; if it does not, delete the run's OWNER file"
        )
    return f"process {owner['pid']} on {owner['host']}" if alive else None


def slurm_state(job: str) -> str:
    """State of a job, '' where Slurm knows it no more. Waits for slurmctld and for COMPLETING. Raises Refused."""
    end, said = time.monotonic() + SLURM_PATIENCE, ""
    while True:
        try:
            answer = subprocess.run(
                ["squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T"],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            if "Invalid job id" in answer.stderr:
                return ""
            said = answer.stderr.strip() or answer.stdout.strip()
            if answer.returncode == 0 and said != "COMPLETING":
                return answer.stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        if time.monotonic() >= end:
            raise Refused(
                f"job {job} started this run, and Slurm does not say whether it still lives ({said}); if it does not, "
                "delete the run's OWNER file"
            )
        time.sleep(2.0)


def begin(paths: RunPaths, topology: Topology, me: dict[str, Any]) -> int | None:
    """Make the next attempt's folder and token; its number, or None where the run has ended well.

    Raises Refused, OSError.
    """
    (paths.root / "attempts").mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(paths.root):
        owner = _owner(paths)
        if owner is not None and (who := holder(owner, me)):
            raise Refused(f"{who} runs {paths.root} already, as attempt {owner.get('attempt')}")
        finishing = [role.name for role in topology.roles if role.finishes]
        if finishing and all(paths.done(name).exists() for name in finishing):
            return None
        number = 1
        while True:
            try:
                paths.attempt(number).mkdir()
                break
            except FileExistsError:
                number += 1
        write_atomic(paths.owner, json.dumps({**me, "attempt": number}) + "\n")
    for name in ("logs", "ready", "preflight"):
        (paths.attempt(number) / name).mkdir()
    paths.done("x").parent.mkdir(exist_ok=True)
    token.make(paths.token(number))
    newest = max(complete_numbers(paths.checkpoints), default=0)
    record = {**me, "time": round(time.time(), 3), "checkpoint": newest}
    write_atomic(paths.attempt(number) / "began.json", json.dumps(record) + "\n")
    if paths.failed.exists():
        os.replace(paths.failed, paths.attempt(number) / "FAILED.before")
    latest = paths.root / "attempts" / f".latest.{number}"
    latest.symlink_to(str(number))
    os.replace(latest, paths.root / "attempts" / "latest")
    return number


def _owner(paths: RunPaths) -> dict[str, Any] | None:
    try:
        record = json.loads(paths.owner.read_text("utf-8"))
        return record if isinstance(record, dict) else {}
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Refused(f"{paths.owner} cannot be read ({error}); delete it if nothing runs this run") from error


@contextlib.contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    with open(root / ".begin.lock", "w") as file:
        with contextlib.suppress(OSError):  # a filesystem without locks: OWNER alone guards
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(argv: list[str] | None = None) -> int:
    """Command line. 0: the number is printed, or the run is done; 2: refused."""
    parser = argparse.ArgumentParser(prog="prlc.runtime.agent.attempt", description=__doc__)
    parser.add_argument("--launcher", required=True, type=int, help="process that runs the whole attempt")
    arguments = parser.parse_args(argv)
    paths = RunPaths(Path(os.environ["PRLC_RUN_DIR"]).absolute())
    try:
        topology = load(Topology, Path(os.environ["PRLC_BUNDLE"]) / "config" / "topology.yaml")
        number = begin(paths, topology, identity(arguments.launcher))
    except (Refused, OSError, DocumentError) as error:
        print(f"prlc: not started: {error}", file=sys.stderr)
        return 2
    if number is None:
        print(f"prlc: {topology.run} in {paths.root} has ended well: nothing to do", file=sys.stderr)
        return 0
    print(number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
