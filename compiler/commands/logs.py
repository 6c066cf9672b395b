"""`prlc logs`: the output of a run's processes."""

from __future__ import annotations

import os
from pathlib import Path

import click
from prlc.compiler.commands.common import FOLDER


@click.command()
@click.argument("bundle", type=FOLDER)
@click.argument("process", required=False)
@click.option("--attempt", type=click.IntRange(min=1), help="Another attempt than the newest.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="Last lines shown.")
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is written; Ctrl-C ends it.")
def logs(bundle: Path, process: str | None, attempt: int | None, lines: int, follow: bool) -> None:
    """The last lines of PROCESS (e.g. trainer-0), or of every process of BUNDLE's newest attempt."""
    from prlc.compiler.commands.job import run_of

    run = run_of(bundle)
    number = attempt or run.attempt
    folder = run.folder / "attempts" / str(number) / "logs"
    known = sorted(path.stem for path in folder.glob("*.log"))
    if not known:
        raise click.ClickException(f"no logs in {folder}")
    if process is not None and process not in known:
        raise click.UsageError(f"attempt {number} has no process {process}; it has: {', '.join(known)}")
    chosen = [str(folder / f"{name}.log") for name in ([process] if process else known)]
    os.execvp("tail", ["tail", f"--lines={lines}", *(["--follow=name"] if follow else []), "--", *chosen])
