"""`prlc explain`: the page of a diagnostic."""

from __future__ import annotations

import click


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """What a diagnostic means, why it exists and its cure. Without CODE: every code."""
    from prlc.compiler import explain as pages

    if code is None:
        for known in pages.codes():
            click.echo(pages.page(known).splitlines()[0])
        return
    try:
        click.echo(pages.page(code))
    except pages.NothingToExplain as error:
        raise click.UsageError(str(error)) from error
