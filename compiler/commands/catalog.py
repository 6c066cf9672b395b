"""`prlc catalog`: what specs may name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click


@click.group("catalog")
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


@catalog_group.command("add")
@click.argument("folder", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Model file to write.")
@click.option("--name", help="Name of the entry; else the folder's.")
@click.option("--force", is_flag=True, help="Overwrite the file, and write counts that the index contradicts.")
@click.option("--json", "as_json", is_flag=True, help="Counts and how they were checked, for machines.")
def catalog_add(folder: Path, output: Path | None, name: str | None, force: bool, as_json: bool) -> None:
    """A model entry from a folder with a Hugging Face config.json, on the standard output or in a file.

    Counts are compared with total_size of model.safetensors.index.json where the folder has one; exit code 1 where
    they differ. A spec names the file: `model: FILE`.
    """
    from prlc import catalog
    from prlc.catalog import params
    from prlc.compiler.starter.model import checked, entry_text, fields_needed, index_bytes
    from prlc.schema.codec import DocumentError, decode, encode

    try:
        model = catalog.model(folder.resolve())
        if name:
            model = decode(catalog.Model, {**encode(model), "name": name}, "--name")
        facts = catalog.facts(model)
        home = folder if folder.is_dir() else folder.parent
        agrees, said = checked(model, index_bytes(home))
    except catalog.CatalogError as error:
        cure = f"{error.help}\n{fields_needed()}" if "formula" in error.message else error.help
        raise click.UsageError(f"{error.message}\n{cure}".rstrip()) from error
    except (DocumentError, ValueError, TypeError, ZeroDivisionError) as error:
        raise click.UsageError(f"{folder}: no usable config: {error}") from error
    if agrees is False and not force:
        click.echo(f"error: the counts are not those of the checkpoint: {said}", err=True)
        sys.exit(1)
    if output is not None:
        try:
            with output.open("w" if force else "x", encoding="utf-8") as file:
                file.write(entry_text(model, said))
        except FileExistsError as error:
            raise click.UsageError(f"already there: {output}; --force overwrites") from error
        except OSError as error:
            raise click.UsageError(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        counts = {"params": params.main_params(model), "mtp_params": params.mtp_params(model)}
        answer = {"name": model.name, "total_params": facts.total_params, "active_params": facts.active_params}
        click.echo(json.dumps({**answer, **counts, "index_agrees": agrees, "checked": said}, indent=1))
    elif output is None:
        click.echo(entry_text(model, said), nl=False)
    else:
        click.echo(f"wrote {output}: {facts.total_params:,} parameters, {facts.active_params:,} active\n{said}")
