"""`prlc diff`: what differs between two plans."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER, read_plan


@click.command()
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
@click.option("--all", "every", is_flag=True, help="Every value of plan.json that differs, a line each.")
def diff(a: Path, b: Path, every: bool) -> None:
    """What differs between two bundles or plan.json files, in words; exit code 1 if anything does."""
    from prlc.compiler.bundle import emit
    from prlc.compiler.bundle.differences import differences

    try:
        values = emit.diff(a, b)
        files = emit.file_differences(a, b) if a.is_dir() and b.is_dir() else []
    except emit.NotABundle as error:
        raise click.UsageError(str(error)) from error
    lines = values if every else differences(*(read_plan(p / "plan.json" if p.is_dir() else p) for p in (a, b)))
    for line in lines:
        click.echo(line)
    if values and not lines:
        click.echo(f"{len(values)} values differ that decide nothing on their own; prlc diff --all shows them")
    if files and not values:
        click.echo(f"the plans agree, these files do not: {', '.join(files)}")
        click.echo("they were changed by hand or written by another compiler: prlc verify says which")
    if values or files:
        sys.exit(1)
