"""What submit, status, logs and cancel share: a bundle's run folder, and Slurm's own clients with a deadline."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

CLIENT_DEADLINE = 60.0  # s


@dataclass(frozen=True)
class Run:
    """A run as its bundle and its folder say it. `attempt` is the newest, 0 where none has begun."""

    name: str
    target: str
    bundle: Path
    folder: Path
    attempt: int

    @property
    def attempt_folder(self) -> Path:
        """Folder of the newest attempt."""
        return self.folder / "attempts" / str(self.attempt)

    @property
    def owner(self) -> dict[str, Any]:
        """The job or process that started the newest attempt; empty where none has."""
        return read_json(self.folder / "OWNER")


def run_of(bundle: Path) -> Run:
    """The run of a bundle. Raises click.UsageError.

    Its folder is PRLC_RUN_DIR, else that of the plan, as the scripts see it: relative to the bundle on Slurm, to the
    current folder on one machine.
    """
    from prlc.schema.codec import DocumentError, load
    from prlc.schema.plan import Plan

    try:
        plan = load(Plan, bundle / "plan.json")
    except (OSError, ValueError, DocumentError) as error:
        raise click.UsageError(f"{bundle} is no bundle: {error}") from error
    start = bundle if plan.cluster.target == "slurm" else Path.cwd()
    folder = (start / os.environ.get("PRLC_RUN_DIR", plan.run_dir)).absolute()
    numbers = [int(p.name) for p in (folder / "attempts").glob("*") if p.name.isdigit()]
    return Run(plan.name, plan.cluster.target, bundle.absolute(), folder, max(numbers, default=0))


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file; empty where there is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def client(*command: str, cwd: Path | None = None) -> str:
    """Output of a Slurm client. Raises click.ClickException with what it said."""
    try:
        answer = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CLIENT_DEADLINE,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{command[0]} is not on this machine: run this where Slurm's clients are"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise click.ClickException(f"{command[0]} has not answered in {CLIENT_DEADLINE:g} s") from error
    if answer.returncode:
        raise click.ClickException(f"{command[0]}: {(answer.stderr or answer.stdout).strip()}")
    return answer.stdout.strip()


def job_state(job: str) -> str:
    """State of a job in Slurm's words, '' where it is no longer known. Raises click.ClickException."""
    try:
        return client("squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T")
    except click.ClickException as error:
        if "Invalid job id" in error.message:
            return ""
        raise


def process_alive(owner: dict[str, Any]) -> bool | None:
    """Whether a local launcher lives: same start time in /proc; None where it is another host's."""
    if owner.get("host") != os.uname().nodename:
        return None
    try:
        fields = Path(f"/proc/{int(owner['pid'])}/stat").read_text().rpartition(")")[2].split()
    except (OSError, KeyError, ValueError):
        return False
    return int(fields[19]) == owner.get("started") and fields[0] != "Z"
