"""`prlc schema`: JSON Schemas for editors."""

from __future__ import annotations

import click


@click.command()
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
