"""`prlc status`: what a run does now."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from prlc.compiler.commands.common import FOLDER

if TYPE_CHECKING:
    from prlc.compiler.commands.job import Run

TAIL = 65536  # bytes of a file of lines that are read from its end


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def status(bundle: Path, as_json: bool) -> None:
    """What Slurm and the run's own files say of BUNDLE's run. Changes nothing."""
    from prlc.compiler.commands.job import run_of

    found = report(run_of(bundle))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for key in ("run", "attempt", "launcher", "outcome", "step", "newest checkpoint"):
        if found.get(key) not in (None, ""):
            click.echo(f"{key:18} {found[key]}")
    for name, state in found["processes"].items():
        click.echo(f"  {name:16} {state}")


def report(run: Run) -> dict[str, Any]:
    """Everything that is known, as plain values."""
    newest = max((int(p.parent.name.rpartition("_")[2]) for p in (run.folder / "checkpoints").glob("step_*/COMPLETE")),
                 default=None)  # fmt: skip
    return {
        "run": f"{run.name} in {run.folder}",
        "attempt": run.attempt or "none has begun",
        "launcher": launcher(run),
        "outcome": outcome(run),
        "step": step(run),
        "newest checkpoint": newest,
        "processes": processes(run),
    }


def launcher(run: Run) -> str:
    """The Slurm job with its state, or the process."""
    from prlc.compiler.commands.job import job_state, process_alive

    owner = run.owner
    if run.target == "slurm" and (job := owner.get("job")):
        try:
            return f"job {job}: {job_state(str(job)).lower() or 'Slurm knows it no more'}"
        except click.ClickException as error:
            return f"job {job}: {error.message}"
    if not owner:
        return ""
    alive = {True: "running", False: "ended", None: f"on {owner.get('host')}, not visible from here"}
    return f"process {owner.get('pid')}: {alive[process_alive(owner)]}"


def outcome(run: Run) -> str:
    """done, why it failed, or '' while it is open."""
    from prlc.compiler.commands.job import read_json

    if failed := read_json(run.folder / "FAILED"):
        return f"failed in attempt {failed.get('attempt')}: {failed.get('cause')}"
    done = sorted(path.name for path in (run.folder / "done").glob("*"))
    return f"done: {', '.join(done)}" if done else ""


def step(run: Run) -> str:
    """The newest trained step with its time and reward."""
    last = last_line(run.folder / "metrics" / "trainer-0.jsonl")
    if not last:
        return ""
    ago = time.time() - last.get("time", 0)
    return f"{last.get('step')}, {ago:.0f} s ago" + (f", reward {last['reward']:.3f}" if "reward" in last else "")


def processes(run: Run) -> dict[str, str]:
    """The last event of each process's agent in the newest attempt."""
    found = {}
    for path in sorted((run.folder / "events").glob("agent-*.jsonl")):
        last = last_line(path, skip="heartbeat")
        if last and last.get("attempt") == run.attempt:
            name = path.stem.removeprefix("agent-")
            more = last.get("cause") or last.get("why") or last.get("gate") or ""
            found[name] = f"{last['event']}{f' ({more})' if more else ''}, {time.time() - last['time']:.0f} s ago"
    return found


def last_line(path: Path, skip: str = "") -> dict[str, Any]:
    """The last whole record of a file of JSON lines whose event is not `skip`; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and not (skip and record.get("event") == skip):
            return record
    return {}
