"""The command line. Exit codes: 0 done, 1 refused (or different), 2 wrong usage.

Each command imports what it needs: `prlc --help` is instant.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Plan

FORMATS = ("text", "json", "github", "sarif")
SPEC = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
FOLDER = click.Path(exists=True, path_type=Path)


def colored(stream: TextIO) -> bool:
    """Colour only for a terminal that wants it (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="prlc")
def main() -> None:
    """Plan and build reinforcement-learning runs of large mixture-of-experts models.

    \b
    prlc plan run.yaml                 what would run where, and why
    prlc build run.yaml -o bundle/     the run as a folder of scripts and configs
    prlc explain PRL314                what a diagnostic means
    """


def _options_of_plan(command: click.decorators.FC) -> click.decorators.FC:
    pin = click.option("--pin", "pins", multiple=True, metavar="PATH=VALUE", help="Hold a value of the spec.")
    form = click.option(
        "--format", "form", type=click.Choice(FORMATS), default="text", help="Format of the diagnostics."
    )
    return pin(form(command))


@main.command()
@click.argument("spec", type=SPEC)
@click.option("--json", "as_json", is_flag=True, help="The plan as plan.json.")
@click.option("--explain", "explained", multiple=True, metavar="PATH", help="Why a value is what it is.")
@click.option("--alternatives", type=click.IntRange(min=1), metavar="N", help="The N next best layouts.")
@_options_of_plan
def plan(
    spec: Path,
    as_json: bool,
    explained: tuple[str, ...],
    alternatives: int | None,
    pins: tuple[str, ...],
    form: str,
) -> None:
    """What a run of SPEC would be: layout, memory, time and the reason of each choice. Writes nothing."""
    made = _planned(spec, pins, "json" if as_json and form == "text" else form, quiet=as_json)
    if as_json:
        from prlc.compiler.emit import canonical

        click.echo(canonical(made), nl=False)
        return
    if form != "text":
        return
    for path in explained:
        _explain_decision(made, path)
    if explained and alternatives is None:
        return
    from prlc.compiler import render

    out = render.console(sys.stdout, colored(sys.stdout))
    if alternatives is not None:
        render.alternatives_text(made, alternatives, out)
    else:
        render.plan_text(made, out, str(spec))


@main.command()
@click.argument("spec", type=SPEC, required=False)
@click.option("--plan", "plan_file", type=SPEC, help="Build from a plan.json instead of a spec.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_options_of_plan
def build(spec: Path | None, plan_file: Path | None, out: Path, pins: tuple[str, ...], form: str) -> None:
    """Write the bundle of SPEC, or of a reviewed plan.json. An older bundle at the place is replaced."""
    from prlc.compiler import emit

    if (spec is None) == (plan_file is None):
        raise click.UsageError("give either SPEC or --plan plan.json")
    if spec is not None:
        made = _planned(spec, pins, form)
    elif pins:
        raise click.UsageError("--pin changes a spec; a plan is built as it is")
    elif plan_file is not None:
        made = _read_plan(plan_file)
    try:
        files = emit.build(made)
        emit.write(files, out)
    except (emit.NotABundle, OSError) as error:
        raise click.UsageError(str(error)) from error
    start = "sbatch run.sbatch" if made.cluster.target == "slurm" else "bash run.sh"
    if form == "text":
        click.echo(f"{out}: {len(files)} files. Start: cd {out} && {start}")


@main.command()
@click.argument("specs", type=SPEC, nargs=-1, required=True, metavar="SPEC...")
@_options_of_plan
def check(specs: tuple[Path, ...], pins: tuple[str, ...], form: str) -> None:
    """Report everything that is wrong with each SPEC, warnings too."""
    found: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for spec in specs:
        _, of_spec, sources[str(spec)] = _plan(_text(spec), str(spec), _pins(pins))
        found += of_spec
    _report(found, sources, form)
    refused = sum(d.severity == "error" for d in found)
    if form == "text":
        click.echo(f"{len(specs)} checked: {refused} errors, {len(found) - refused} warnings")
    if refused:
        sys.exit(1)


@main.group("catalog")
def catalog_group() -> None:
    """Models, GPUs and clusters that specs may name."""


@catalog_group.command("list")
@click.argument("kind", type=click.Choice(("models", "gpus", "clusters")), required=False)
def catalog_list(kind: str | None) -> None:
    """Names of the catalog's entries."""
    from prlc.compiler import catalog_view

    kinds = tuple(k for k in catalog_view.KINDS if kind in (None, f"{k}s"))
    click.echo(catalog_view.listing(kinds))


@catalog_group.command("show")
@click.argument("name")
def catalog_show(name: str) -> None:
    """One entry; of a model also its parameter counts. NAME may be a path to a model."""
    from prlc.catalog import CatalogError
    from prlc.compiler import catalog_view

    try:
        click.echo(catalog_view.entry(name))
    except CatalogError as error:
        raise click.UsageError(f"{error.message}\n{error.help}".rstrip()) from error


@main.command()
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


@main.command()
@click.argument("bundle", type=FOLDER)
def verify(bundle: Path) -> None:
    """Compare BUNDLE with its manifest: is it what the compiler wrote?"""
    from prlc.compiler import emit

    try:
        problems = emit.verify(bundle)
    except emit.NotABundle as error:
        raise click.UsageError(str(error)) from error
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(1)
    click.echo(f"{bundle}: as the compiler wrote it")


@main.command()
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


@main.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """The JSON Schema of a document, for editors. Without NAME: the documents."""
    from importlib.resources import files

    known = {f.name.split(".")[0]: f for f in files("prlc.schema").iterdir() if f.name.endswith(".schema.json")}
    if name is None:
        click.echo("\n".join(sorted(known)))
    elif name in known:
        click.echo(known[name].read_text("utf-8"), nl=False)
    else:
        raise click.UsageError(f"no document named {name!r}; there are {', '.join(sorted(known))}")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error


def _pins(pins: tuple[str, ...]) -> dict[str, str]:
    """('trainer.parallel.ep=16',) -> {'trainer.parallel.ep': '16'}."""
    split = {pin: pin.partition("=") for pin in pins}
    for pin, (path, equals, _) in split.items():
        if not (path and equals):
            raise click.UsageError(f"--pin {pin}: write it as path=value, e.g. trainer.parallel.ep=16")
    return {path.strip(): value.strip() for path, _, value in split.values()}


def _plan(text: str, filename: str, pins: dict[str, str]) -> tuple[Plan | None, list[Diagnostic], str]:
    """The plan, its diagnostics, and the text that their positions are in: the spec with its pins."""
    from prlc.compiler.pins import PinError, with_pins
    from prlc.compiler.plan import plan as make
    from prlc.schema import positions

    document = positions.load(text, filename)
    if document.error or document.duplicates or not isinstance(document.data, dict):
        pins = {}  # nothing to pin in; what is wrong is reported as it stands
    try:
        return (*make(text, filename, pins), with_pins(text, pins))
    except PinError as error:
        raise click.UsageError(str(error)) from error


def _planned(spec: Path, pins: tuple[str, ...], form: str, quiet: bool = False) -> Plan:
    """The plan; exits with 1 and every diagnostic when there is none. `quiet`: say nothing of warnings."""
    made, found, shown = _plan(_text(spec), str(spec), _pins(pins))
    if made is None or (form != "text" and not quiet):
        _report(found, {str(spec): shown}, form)
    if made is None:
        sys.exit(1)
    return made


def _report(found: list[Diagnostic], sources: dict[str, str], form: str) -> None:
    """Text goes to stderr, so that stdout stays the answer; what machines read goes to stdout."""
    from prlc.schema import diagnostics

    if form == "text":
        if found:
            click.echo(diagnostics.render_text(found, sources, color=colored(sys.stderr)), err=True, nl=False)
        return
    write = {"json": diagnostics.to_json, "github": diagnostics.to_github, "sarif": diagnostics.to_sarif}
    click.echo(write[form](found), nl=False)


def _explain_decision(made: Plan, path: str) -> None:
    from prlc.compiler import explain as pages

    try:
        click.echo(pages.decision_text(pages.decision(made, path)))
    except pages.NothingToExplain as error:
        raise click.UsageError(str(error)) from error


def _read_plan(path: Path) -> Plan:
    from prlc.schema.codec import DocumentError, load
    from prlc.schema.plan import Plan

    try:
        return load(Plan, path)
    except (OSError, ValueError, DocumentError) as error:
        raise click.UsageError(f"{path} is no plan: {error}") from error


if __name__ == "__main__":
    main()
