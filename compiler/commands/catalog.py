"""`prlc catalog`: what specs may name."""

from __future__ import annotations

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
