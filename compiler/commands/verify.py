"""`prlc verify`: is a bundle what the compiler wrote?"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER


@click.command()
@click.argument("bundle", type=FOLDER)
def verify(bundle: Path) -> None:
    """Compare BUNDLE with its manifest: is it what the compiler wrote? What its own jobs left there does not count."""
    from prlc.compiler.bundle import emit

    try:
        problems = [p for p in emit.verify(bundle) if not emit.left_by_a_job(p)]
    except emit.NotABundle as error:
        raise click.UsageError(str(error)) from error
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(1)
    click.echo(f"{bundle}: as the compiler wrote it")
