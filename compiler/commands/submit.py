"""`prlc submit`: start a bundle."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER

REFUSED_AT_START = ("PRL371", "PRL372")  # what the runtime of this release refuses once its nodes are allocated


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--test", is_flag=True, help="Slurm: let it judge the job (sbatch --test-only) and submit nothing.")
@click.option("--anyway", is_flag=True, help="Submit a plan that this release's runtime refuses at its start.")
@click.option("--after", "job", metavar="JOB", help="Slurm: start when that job has ended, however it ended.")
def submit(bundle: Path, test: bool, anyway: bool, job: str | None) -> None:
    """Verify BUNDLE against its manifest, then sbatch run.sbatch, or run.sh on one machine.

    A bundle that is not what the compiler wrote is refused, and so are a run that another job has and a plan that the
    runtime would refuse.
    """
    from prlc.compiler.bundle import emit
    from prlc.compiler.commands.job import client, job_state, process_alive, run_of

    try:
        problems = [p for p in emit.verify(bundle) if not emit.left_by_a_job(p)]
    except emit.NotABundle as error:
        raise click.UsageError(str(error)) from error
    if problems:
        for problem in problems:
            click.echo(problem, err=True)
        raise click.ClickException(f"{bundle} is not what the compiler wrote: build it again")
    warnings = json.loads((bundle / "plan.json").read_text("utf-8"))["warnings"]
    refused = [f"{w['code']} {w['message']}" for w in warnings if w["code"] in REFUSED_AT_START]
    if refused and not (anyway or test):
        raise click.ClickException(
            "\n".join(["the runtime would refuse this run at its start (--anyway submits it):", *refused])
        )
    run = run_of(bundle)
    if run.target == "local":
        if test or job:
            raise click.UsageError("--test and --after are for Slurm; this bundle runs on one machine")
        if process_alive(run.owner):
            raise click.ClickException(f"process {run.owner['pid']} runs {run.folder} already, attempt {run.attempt}")
        sys.stdout.flush()
        os.execv(run.bundle / "run.sh", ["run.sh"])
    owner = run.owner.get("job")
    if owner and not job and not test and (state := job_state(str(owner))) in ("RUNNING", "PENDING", "COMPLETING"):
        raise click.ClickException(f"job {owner} ({state}) has {run.folder}: scancel it first, or --after {owner}")
    options = (["--test-only"] if test else ["--parsable"]) + ([f"--dependency=afterany:{job}"] if job else [])
    answer = client("sbatch", *options, "run.sbatch", cwd=run.bundle)
    if test:
        click.echo("sbatch takes the job; nothing was submitted")
        return
    number = answer.partition(";")[0]
    click.echo(f"job {number}; prlc status {bundle}; log: {run.bundle}/{run.name}-{number}.out")
