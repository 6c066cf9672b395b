"""`prlc build`: the run as a folder of scripts and configs."""

from __future__ import annotations

from pathlib import Path

import click
from prlc.compiler.commands.common import SPEC, options_of_plan, planned, read_plan


@click.command()
@click.argument("spec", type=SPEC, required=False)
@click.option("--plan", "plan_file", type=SPEC, help="Build from a plan.json instead of a spec.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@options_of_plan
def build(spec: Path | None, plan_file: Path | None, out: Path, pins: tuple[str, ...], form: str) -> None:
    """Write the bundle of SPEC, or of a reviewed plan.json. An older bundle at the place is replaced."""
    from prlc.compiler import emit

    if (spec is None) == (plan_file is None):
        raise click.UsageError("give either SPEC or --plan plan.json")
    if spec is not None:
        made = planned(spec, pins, form)
    elif pins:
        raise click.UsageError("--pin changes a spec; a plan is built as it is")
    elif plan_file is not None:
        made = read_plan(plan_file)
    try:
        files = emit.build(made)
        emit.write(files, out)
    except (emit.NotABundle, OSError) as error:
        raise click.UsageError(str(error)) from error
    start = "sbatch run.sbatch" if made.cluster.target == "slurm" else "bash run.sh"
    if form == "text":
        click.echo(f"{out}: {len(files)} files. Start: cd {out} && {start}")
