"""`prlc plan`: what a run would be, and what other values would make of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prlc.compiler.commands.common import SPEC, colored, options_of_plan, pins_of, planned, text_of

if TYPE_CHECKING:
    from prlc.schema.plan import Plan


@click.command()
@click.argument("spec", type=SPEC)
@click.option("--json", "as_json", is_flag=True, help="The plan as plan.json; a sweep as a list of points.")
@click.option(
    "--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page that works offline."
)
@click.option("--explain", "explained", multiple=True, metavar="PATH", help="Why a value is what it is, what it beat.")
@click.option("--alternatives", type=click.IntRange(min=1), metavar="N", help="The N next best layouts.")
@click.option(
    "--nodes", type=click.IntRange(min=1), metavar="N", help="What if at most N nodes; more than there are too."
)
@click.option("--cluster", metavar="NAME", help="What if on another cluster.")
@click.option("--seq-len", type=click.IntRange(min=1), metavar="N", help="What if samples had at most N tokens.")
@click.option("--set", "values", multiple=True, metavar="PATH=VALUE", help="What if this value; the same as --pin.")
@click.option("--sweep", "sweeps", multiple=True, metavar="PATH=A:B:STEP", help="A table over values; also PATH=A,B,C.")
@options_of_plan
def plan(
    spec: Path,
    as_json: bool,
    page: Path | None,
    explained: tuple[str, ...],
    alternatives: int | None,
    nodes: int | None,
    cluster: str | None,
    seq_len: int | None,
    values: tuple[str, ...],
    sweeps: tuple[str, ...],
    pins: tuple[str, ...],
    form: str,
) -> None:
    """What a run of SPEC would be: layout, memory, time and the reason of each choice. Writes nothing but --html."""
    short = {"nodes": nodes, "cluster": cluster, "sequence.seq_len": seq_len}
    held = (*pins, *values, *(f"{path}={value}" for path, value in short.items() if value is not None))
    if sweeps:
        show_sweep(spec, held, sweeps, as_json)
        return
    made = planned(spec, held, "json" if as_json and form == "text" else form, quiet=as_json, grow=True)
    if page is not None:
        write_page(made, spec, held, page)
    if as_json:
        from prlc.compiler.bundle.emit import canonical

        click.echo(canonical(made), nl=False)
        return
    if form != "text":
        return
    for path in explained:
        explain_decision(made, path, spec, held)
    if explained and alternatives is None:
        return
    from prlc.compiler import render, whatif

    out = render.console(sys.stdout, colored(sys.stdout))
    if alternatives is not None:
        render.alternatives_text(made, alternatives, out)
    else:
        render.plan_text(made, out, str(spec), whatif.changes(text_of(spec), pins_of(held)))


def explain_decision(made: Plan, path: str, spec: Path, pins: tuple[str, ...]) -> None:
    """One decision, with the best plan of each other value of its path."""
    from prlc.compiler import explain as pages
    from prlc.compiler.search.losers import with_losers

    try:
        found = pages.decision(made, path)
    except pages.NothingToExplain as error:
        raise click.UsageError(str(error)) from error
    click.echo(pages.decision_text(with_losers(text_of(spec), str(spec), pins_of(pins), found)))


def show_sweep(spec: Path, pins: tuple[str, ...], sweeps: tuple[str, ...], as_json: bool) -> None:
    """The table or the JSON of a sweep; exits with 1 when no point has a plan."""
    from prlc.compiler import render, render_sweep, whatif
    from prlc.compiler.pins import PinError

    try:
        answers = list(whatif.sweep(text_of(spec), str(spec), pins_of(pins), sweeps))
    except (whatif.SweepError, PinError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(render_sweep.sweep_json(answers), nl=False)
    else:
        render_sweep.sweep_text(answers, render.console(sys.stdout, colored(sys.stdout)))
    if not any(found.choice for found in answers):
        sys.exit(1)


def write_page(made: Plan, spec: Path, pins: tuple[str, ...], page: Path) -> None:
    """The plan as one HTML file, with the frontier over fewer nodes. Raises click.UsageError."""
    from prlc.compiler import whatif
    from prlc.compiler.pins import with_pins
    from prlc.compiler.report.page import html
    from prlc.compiler.report.scatter import points

    text, held = text_of(spec), pins_of(pins)
    document = html(made, with_pins(text, held), points(text, str(spec), held), whatif.changes(text, held))
    try:
        page.write_text(document, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{page} cannot be written: {error}") from error
