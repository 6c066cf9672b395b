"""`prlc build`: the run as a folder of scripts and configs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from prlc.compiler.commands.common import SPEC, colored, options_of_plan, planned, read_plan


@click.command()
@click.argument("spec", type=SPEC, required=False)
@click.option("--plan", "plan_file", type=SPEC, help="Build from a plan.json instead of a spec.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@click.option("--validate", is_flag=True, help="Ask the programs' own parsers, where they are installed.")
@click.option(
    "--python", type=click.Path(path_type=Path), help="Python that has them; else the spec's venv, else this one."
)
@options_of_plan
def build(
    spec: Path | None,
    plan_file: Path | None,
    out: Path,
    validate: bool,
    python: Path | None,
    pins: tuple[str, ...],
    form: str,
) -> None:
    """Write the bundle of SPEC, or of a reviewed plan.json. An older bundle at the place is replaced."""
    from prlc.compiler.bundle import emit

    if (spec is None) == (plan_file is None):
        raise click.UsageError("give either SPEC or --plan plan.json")
    if spec is not None:
        made = planned(spec, pins, form)
    elif pins:
        raise click.UsageError("--pin changes a spec; a plan is built as it is")
    elif plan_file is not None:
        made = read_plan(plan_file)
    if validate:
        from prlc.compiler.bundle import validate as judge

        own = Path(made.environment_setup) / "bin" / "python"
        verdicts = judge.validate(made, python or (own if own.is_file() else Path(sys.executable)))
        click.echo(judge.report(verdicts), err=True)
        if any(verdict.wrong for verdict in verdicts):
            sys.exit(1)
    try:
        files = emit.build(made)
        emit.write(files, out)
    except (ValueError, OSError) as error:  # NotABundle, or a plan.json with a placeholder that nothing fills
        raise click.UsageError(str(error)) from error
    start = "sbatch run.sbatch" if made.cluster.target == "slurm" else "bash run.sh"
    if form == "text":
        from prlc.compiler import render

        full = f"prlc check {spec}" if spec and not pins else f"{out / 'plan.json'}, warnings"
        render.print_warnings(made, render.console(sys.stderr, colored(sys.stderr)), full)
        click.echo(f"{out}: {len(files)} files. Start: cd {out} && {start}")
