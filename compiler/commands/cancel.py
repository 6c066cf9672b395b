"""`prlc cancel`: stop a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER


@click.command()
@click.argument("bundle", type=FOLDER)
def cancel(bundle: Path) -> None:
    """Stop the run of BUNDLE: scancel of its job, or TERM to its run.sh. Submit it again to go on."""
    from prlc.compiler.commands.job import client, job_state, process_alive, run_of

    run = run_of(bundle)
    owner = run.owner
    if not owner:
        raise click.ClickException(f"no attempt of {run.folder} has begun")
    if run.target == "slurm" and (job := owner.get("job")):
        state = job_state(str(job))
        if state not in ("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING"):
            raise click.ClickException(f"job {job} does not run: {state.lower() or 'Slurm knows it no more'}")
        client("scancel", str(job))
        click.echo(f"job {job}: cancelled")
        return
    alive = process_alive(owner)
    if alive is None:
        raise click.ClickException(f"it runs on {owner.get('host')}: cancel it there")
    if not alive:
        raise click.ClickException(f"process {owner['pid']} does not run any more")
    os.kill(int(owner["pid"]), signal.SIGTERM)  # a shell that was started in the background ignores SIGINT
    click.echo(f"process {owner['pid']}: told to stop")
