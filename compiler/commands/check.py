"""`prlc check`: diagnostics alone, for editors and commit hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prlc.compiler.commands.common import SPEC, options_of_plan, pins_of, plan_of, report, text_of

if TYPE_CHECKING:
    from prlc.schema.diagnostics import Diagnostic


@click.command()
@click.argument("specs", type=SPEC, nargs=-1, required=True, metavar="SPEC...")
@options_of_plan
def check(specs: tuple[Path, ...], pins: tuple[str, ...], form: str) -> None:
    """Report everything that is wrong with each SPEC, warnings too."""
    found: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for spec in specs:
        _, of_spec, sources[str(spec)] = plan_of(text_of(spec), str(spec), pins_of(pins))
        found += of_spec
    report(found, sources, form)
    refused = sum(d.severity == "error" for d in found)
    if form == "text":
        click.echo(f"{len(specs)} checked: {refused} errors, {len(found) - refused} warnings")
    if refused:
        sys.exit(1)
