"""The catalog for people: what there is, and one entry with what is computed from it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from prlc import catalog
from prlc.schema.codec import dump

Kind = Literal["model", "gpu", "cluster"]
KINDS: tuple[Kind, ...] = ("model", "gpu", "cluster")


def listing(kinds: tuple[Kind, ...] = KINDS) -> str:
    """Names of each kind, one a line below its heading."""
    blocks = []
    for kind in kinds:
        names = catalog.names(kind)
        blocks.append("\n".join([f"{kind}s ({len(names)})", *(f"  {name}" for name in names)]))
    return "\n\n".join(blocks)


def entry(name: str) -> str:
    """One entry as YAML; of a model also the facts that the compiler computes. Raises CatalogError."""
    for kind in KINDS:
        if name in catalog.names(kind):
            return _model(name) if kind == "model" else dump(getattr(catalog, kind)(name)).rstrip()
    return _model(name)  # a path, or the error with the closest names


def _model(name: str) -> str:
    model = catalog.model(name)
    facts = catalog.facts(model)
    lines = [dump(model).rstrip(), "", "# computed"]
    for field in dataclasses.fields(facts):
        value = getattr(facts, field.name)
        if field.name == "params":
            lines += [f"# params.{part}: {count:,}" for part, count in sorted(value.items())]
        elif field.name.endswith("_params"):
            lines.append(f"# {field.name}: {value:,}")
    return "\n".join(lines)
