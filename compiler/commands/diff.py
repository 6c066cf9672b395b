"""`prlc diff`: what differs between two plans."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER


@click.command()
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
def diff(a: Path, b: Path) -> None:
    """What differs between two bundles or plan.json files, a line a value; exit code 1 if any does."""
    from prlc.compiler import emit

    try:
        lines = emit.diff(a, b)
    except emit.NotABundle as error:
        raise click.UsageError(str(error)) from error
    for line in lines:
        click.echo(line)
    if lines:
        sys.exit(1)
