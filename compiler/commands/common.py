"""What commands share: reading a spec, planning it, reporting diagnostics. Exit codes: 1 refused, 2 wrong usage."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from prlc.schema.secrets import redacted

if TYPE_CHECKING:
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Plan

FORMATS = ("text", "json", "github", "sarif")
SPEC = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
KERNELS = "prlc.kernels"  # key of what --kernels named, in click's context
FOLDER = click.Path(exists=True, path_type=Path)


def colored(stream: TextIO) -> bool:
    """Colour only for a terminal that wants it (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def options_of_plan(command: click.decorators.FC) -> click.decorators.FC:
    """Options of every command that plans."""
    pin = click.option("--pin", "pins", multiple=True, metavar="PATH=VALUE", help="Hold a value of the spec.")
    form = click.option(
        "--format", "form", type=click.Choice(FORMATS), default="text", help="Format of the diagnostics."
    )
    kernels = click.option(
        "--kernels", metavar="FILE", expose_value=False, callback=_remember,
        help="Coefficients of the forecast that prlc calibrate wrote, or a name of the catalog's.",
    )  # fmt: skip
    return pin(kernels(form(command)))


def _remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """--kernels is a pin of the spec's kernels; a file is seen from the folder that the command runs in."""
    if value is not None:
        path = Path(value)
        context.meta[KERNELS] = str(path.resolve()) if path.is_file() else value


def text_of(path: Path) -> str:
    """The file's text. Raises click.UsageError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error


def pins_of(pins: tuple[str, ...]) -> dict[str, str]:
    """('trainer.parallel.ep=16',) -> {'trainer.parallel.ep': '16'}."""
    split = {pin: pin.partition("=") for pin in pins}
    for pin, (path, equals, _) in split.items():
        if not (path and equals):
            raise click.UsageError(f"--pin {redacted(pin)}: write it as path=value, e.g. trainer.parallel.ep=16")
    found = {path.strip(): value.strip() for path, _, value in split.values()}
    context = click.get_current_context(silent=True)
    named = context.meta.get(KERNELS) if context else None
    return found if named is None else {**found, "kernels": named}


def plan_of(
    text: str, filename: str, pins: dict[str, str], grow: bool = False
) -> tuple[Plan | None, list[Diagnostic], str]:
    """The plan, its diagnostics, and the text that their positions are in: the spec with its pins."""
    from prlc.compiler.pins import PinError, with_pins
    from prlc.compiler.plan import plan as make
    from prlc.schema import positions

    document = positions.load(text, filename)
    if document.error or document.duplicates or not isinstance(document.data, dict):
        pins = {}  # nothing to pin in; what is wrong is reported as it stands
    try:
        return (*make(text, filename, pins, grow), with_pins(text, pins))
    except PinError as error:
        raise click.UsageError(redacted(str(error))) from error


def planned(spec: Path, pins: tuple[str, ...], form: str, quiet: bool = False, grow: bool = False) -> Plan:
    """The plan; exits with 1 and every diagnostic when there is none. `quiet`: say nothing of warnings.

    `grow`: nodes may be pinned above the cluster's.
    """
    made, found, shown = plan_of(text_of(spec), str(spec), pins_of(pins), grow)
    if made is None or (form != "text" and not quiet):
        report(found, {str(spec): shown}, form)
    if made is None:
        sys.exit(1)
    return made


def report(found: list[Diagnostic], sources: dict[str, str], form: str) -> None:
    """Text goes to stderr, so that stdout stays the answer; what machines read goes to stdout."""
    from prlc.schema import diagnostics

    if form == "text":
        if found:
            sources = {**_others(found, sources), **sources}
            click.echo(diagnostics.render_text(found, sources, color=colored(sys.stderr)), err=True, nl=False)
        return
    write = {"json": diagnostics.to_json, "github": diagnostics.to_github, "sarif": diagnostics.to_sarif}
    click.echo(write[form](found), nl=False)


def _others(found: list[Diagnostic], sources: dict[str, str]) -> dict[str, str]:
    """Texts of the cluster and model files that findings stand in."""
    names = {d.span.file for d in found if d.span} - set(sources)
    return {name: Path(name).read_text("utf-8", "replace") for name in names if Path(name).is_file()}


def read_plan(path: Path) -> Plan:
    """A plan.json. Raises click.UsageError."""
    from prlc.schema.codec import DocumentError, load
    from prlc.schema.plan import Plan

    try:
        return load(Plan, path)
    except (OSError, ValueError, DocumentError) as error:
        raise click.UsageError(f"{path} is no plan: {redacted(str(error))}") from error
