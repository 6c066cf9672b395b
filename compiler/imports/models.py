"""The catalog's model of a name that a prime-rl configuration gives, found by the value: no key's name is assumed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prlc import catalog
from prlc.catalog.errors import CatalogError


@dataclass(frozen=True, kw_only=True)
class Named:
    """A model by the name of one of its checkpoints."""

    model: str
    fp8: bool


@cache
def _index() -> dict[str, Named]:
    found: dict[str, Named] = {}
    for name in catalog.names("model"):
        model = catalog.model(name)
        found[name] = Named(model=name, fp8=False)
        for one in model.checkpoints:
            found.setdefault(one.hf_id.lower(), Named(model=name, fp8=one.dtype.startswith("float8")))
        for hf_id in (model.hf_id, *model.same_architecture):
            found.setdefault(hf_id.lower(), Named(model=name, fp8=False))
    return found


def named(value: str) -> Named | None:
    """The model of a hub id or a catalog name, or of a local folder that holds a config.json; None for neither."""
    known = _index().get(value.lower())
    if known is None and (Path(value) / "config.json").is_file():
        try:
            catalog.model(value)
        except CatalogError:
            return None
        return Named(model=str(Path(value).resolve()), fp8=False)
    return known
