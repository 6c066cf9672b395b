"""`prlc check`: diagnostics alone, for editors and commit hooks."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prlc.compiler.commands.common import options_of_plan, pins_of, plan_of, report, text_of

if TYPE_CHECKING:
    from prlc.schema.diagnostics import Diagnostic

SPEC = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)


@click.command()
@click.argument("specs", type=SPEC, nargs=-1, required=True, metavar="SPEC...")
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option(
    "--stdin-filename", metavar="FILE", default="stdin.yaml", help="Name of what SPEC - reads, for an editor's buffer."
)
@options_of_plan
def check(specs: tuple[Path, ...], strict: bool, stdin_filename: str, pins: tuple[str, ...], form: str) -> None:
    """Report everything that is wrong with each SPEC, warnings too. SPEC - is the standard input.

    Findings for people go to the standard error, the count and every other --format to the standard output.
    """
    from prlc.compiler.render import plural

    found: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for spec in specs:
        name = stdin_filename if str(spec) == "-" else str(spec)
        text = sys.stdin.read() if str(spec) == "-" else text_of(spec)
        _, of_spec, sources[name] = plan_of(text, name, pins_of(pins))
        found += of_spec
    if strict:
        found = [dataclasses.replace(d, severity="error") for d in found]
    report(found, sources, form)
    refused = sum(d.severity == "error" for d in found)
    if form == "text":
        counts = f"{plural(refused, 'error')}, {plural(len(found) - refused, 'warning')}"
        click.echo(f"{len(specs)} checked: {counts}")
    if refused:
        sys.exit(1)
