"""`prlc plan`: what a run would be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prlc.compiler.commands.common import SPEC, colored, options_of_plan, planned

if TYPE_CHECKING:
    from prlc.schema.plan import Plan


@click.command()
@click.argument("spec", type=SPEC)
@click.option("--json", "as_json", is_flag=True, help="The plan as plan.json.")
@click.option("--explain", "explained", multiple=True, metavar="PATH", help="Why a value is what it is.")
@click.option("--alternatives", type=click.IntRange(min=1), metavar="N", help="The N next best layouts.")
@options_of_plan
def plan(
    spec: Path,
    as_json: bool,
    explained: tuple[str, ...],
    alternatives: int | None,
    pins: tuple[str, ...],
    form: str,
) -> None:
    """What a run of SPEC would be: layout, memory, time and the reason of each choice. Writes nothing."""
    made = planned(spec, pins, "json" if as_json and form == "text" else form, quiet=as_json)
    if as_json:
        from prlc.compiler.emit import canonical

        click.echo(canonical(made), nl=False)
        return
    if form != "text":
        return
    for path in explained:
        explain_decision(made, path)
    if explained and alternatives is None:
        return
    from prlc.compiler import render

    out = render.console(sys.stdout, colored(sys.stdout))
    if alternatives is not None:
        render.alternatives_text(made, alternatives, out)
    else:
        render.plan_text(made, out, str(spec))


def explain_decision(made: Plan, path: str) -> None:
    from prlc.compiler import explain as pages

    try:
        click.echo(pages.decision_text(pages.decision(made, path)))
    except pages.NothingToExplain as error:
        raise click.UsageError(str(error)) from error
