"""`prlc calibrate`: coefficients of the forecast from measurements or from a finished run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from prlc.schema.kernels import Kernels


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Kernels file to write.")
@click.option("--gpu", default="h200", show_default=True, help="GPU of the coefficients, for rows.")
@click.option("--prior", default="prior", show_default=True, help="Kernels that a fit to rows starts from.")
@click.option(
    "--spec", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Spec of the run, for a run folder."
)
@click.option("--predict", is_flag=True, help="Fit nothing: set the catalog's predictions beside the rows.")
def calibrate(
    sources: tuple[Path, ...], output: Path | None, gpu: str, prior: str, spec: Path | None, predict: bool
) -> None:
    """Fit coefficients to SOURCES and print the residuals.

    SOURCES are CSVs of measurements (columns of benchmarks/data/measurements.csv) or the folder of a finished run. A
    spec names the file that -o writes: `kernels: FILE`.
    """
    if predict:
        click.echo(_predicted(sources), nl=False)
        return
    name = output.stem if output else gpu
    folder = next((source for source in sources if source.is_dir()), None)
    if folder is not None and len(sources) > 1:
        raise click.UsageError(f"{folder} is a run folder: calibrate on it alone")
    made = _from_run(folder, spec, name) if folder else _from_rows(sources, gpu, prior, name)
    if output is not None:
        from prlc.compiler.calibration.calibrate import to_yaml

        output.write_text(to_yaml(made), "utf-8")
        click.echo(f"wrote {output}")


def _predicted(paths: tuple[Path, ...]) -> str:
    from prlc import catalog
    from prlc.compiler.calibration import report
    from prlc.compiler.calibration.calibrate import predict
    from prlc.compiler.calibration.rows import read

    try:
        rows = [row for path in paths for row in read(path)]
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error
    kernels = {name: catalog.kernels(name) for name in catalog.names("kernels") if name != "prior"}
    return report.predictions_text(predict(rows, kernels)[0])


def _from_rows(paths: tuple[Path, ...], gpu: str, prior: str, name: str) -> Kernels:
    from prlc import catalog
    from prlc.compiler.calibration import report
    from prlc.compiler.calibration.calibrate import calibrate as fit
    from prlc.compiler.calibration.rows import read

    try:
        start, rows = catalog.kernels(prior), [row for path in paths for row in read(path)]
        if gpu not in catalog.names("kernels"):
            raise click.UsageError(f"no GPU {gpu}; there are coefficients for {', '.join(catalog.names('kernels'))}")
    except (catalog.CatalogError, ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error
    found = fit(rows, start, gpu, name)
    if not found.outcomes:
        raise click.UsageError("no row that the formulas price")
    click.echo(report.text(found), nl=False)
    return found.kernels


def _from_run(folder: Path, spec: Path | None, name: str) -> Kernels:
    from prlc.compiler.calibration.report import run_text
    from prlc.compiler.calibration.run import NoMeasurement, from_run, read_run
    from prlc.compiler.commands.common import report, text_of
    from prlc.compiler.resolve import resolve
    from prlc.compiler.search.solve import NoLayout, solve

    if spec is None:
        raise click.UsageError(f"{folder} is a run folder: name its spec with --spec")
    text = text_of(spec)
    resolved, diagnostics = resolve(text, str(spec))
    if resolved is None:
        report(diagnostics, {str(spec): text}, "text")
        sys.exit(1)
    try:
        found = from_run(read_run(folder), resolved, solve(resolved).best.layout, name)
    except (NoMeasurement, NoLayout) as error:
        raise click.UsageError(str(error)) from error
    click.echo(run_text(found), nl=False)
    return found.kernels
