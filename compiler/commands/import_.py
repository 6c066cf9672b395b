"""`prlc import`: a configuration of prime-rl as a run spec, and what prlc thinks of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from prlc.compiler.commands.common import colored, pins_of, plan_of, report, text_of

if TYPE_CHECKING:
    from prlc.compiler.imports.reading import Source

ROLES = ("trainer", "orchestrator", "inference")


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="[ROLE=]FILE...")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the spec to a new file.")
@click.option("--cluster", metavar="NAME", help="Cluster of the catalog, or a cluster file.")
@click.option("--set", "values", multiple=True, metavar="PATH=VALUE", help="A value of the spec; it wins.")
@click.option("--no-plan", is_flag=True, help="Do not plan the spec.")
@click.option("--json", "as_json", is_flag=True, help="The account of every key, and the spec, as JSON; no plan.")
def import_(
    files: tuple[str, ...],
    output: Path | None,
    cluster: str | None,
    values: tuple[str, ...],
    no_plan: bool,
    as_json: bool,
) -> None:
    """A run spec from prime-rl's TOML (0.6 to 0.8), with what became of each key, planned at once.

    Several files are merged, later ones win. ROLE=FILE, or a file that is named trainer.toml, orchestrator.toml or
    inference.toml, is that block of the configuration.
    """
    from prlc.compiler.imports import primerl, spec
    from prlc.compiler.imports import report as pages
    from prlc.compiler.imports.reading import TomlError, leaves

    if output is not None and output.exists():
        raise click.UsageError(f"{output} exists; nothing is written over it")
    sources = [source(given) for given in files]
    try:
        keys = leaves(sources)
    except TomlError as error:
        refuse([str(error)])
    accounts = primerl.account(keys, held(values))
    made = spec.made(accounts, Path(sources[0].file).stem, cluster)
    wrong = pages.problems(accounts, made)
    click.echo(pages.account_json(accounts, made) if as_json else pages.account_text(accounts, made), nl=False)
    if wrong:
        refuse(wrong)
    text = spec.text(made, tuple(Path(one.file).name for one in sources))
    if output is not None:
        write(text, output)
    elif not as_json:
        click.echo(f"\n{text}", nl=False)
    if not (as_json or no_plan):
        show_plan(text, str(output or "run.yaml"))


def source(given: str) -> Source:
    """[ROLE=]FILE as the text of a block. Raises click.UsageError."""
    from prlc.compiler.imports.reading import Source, TomlError, parsed, role_of

    role, equals, name = given.partition("=")
    if not equals or role not in ROLES:
        role, name = "", given
    path = Path(name)
    if not path.is_file():
        raise click.UsageError(f"{name}: no such file; give FILE, or ROLE=FILE with one of {', '.join(ROLES)}")
    text = text_of(path)
    if not role:
        try:
            role = role_of(path, parsed(text, name))
        except TomlError as error:
            refuse([str(error)])
    return Source(file=name, text=text, role=role)


def held(values: tuple[str, ...]) -> dict[str, Any]:
    """--set PATH=VALUE by whole path, each value read as YAML. Raises click.UsageError."""
    from prlc.compiler.pins import PinError, full_path
    from prlc.schema import positions

    try:
        return {full_path(path): positions.load(value, "--set").data for path, value in pins_of(values).items()}
    except PinError as error:
        raise click.UsageError(str(error)) from error


def write(text: str, output: Path) -> None:
    """The spec as a new file. Raises click.UsageError."""
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error}") from error
    click.echo(f"\nwrote {output}")


def show_plan(text: str, filename: str) -> None:
    """The plan of the spec as `prlc plan` prints it; exits with 1 and every diagnostic when there is none."""
    from prlc.compiler import render

    made, found, shown = plan_of(text, filename, {})
    if made is None:
        report(found, {filename: shown}, "text")
        sys.exit(1)
    click.echo()
    render.plan_text(made, render.console(sys.stdout, colored(sys.stdout)), filename)


def refuse(lines: list[str]) -> NoReturn:
    """What is wrong on stderr, exit 1."""
    for line in lines:
        click.echo(f"error: {line}", err=True)
    sys.exit(1)
