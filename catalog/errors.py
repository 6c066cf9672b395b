"""The one error that the catalog raises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CatalogError(LookupError):
    """An entry is missing, broken or of a kind without a formula; `help` is the cure, '' for none."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message, self.help = message, help


def unknown(kind: str, name: str, known: Iterable[str]) -> CatalogError:
    """The error for a name that is not in the catalog, with the closest names as its cure."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    cure = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
    return CatalogError(f"no {kind} named {name!r}", cure)
