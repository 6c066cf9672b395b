"""Reads catalog/compat.yaml and holds it to its own rules."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import yaml
from prlc.catalog.errors import CatalogError
from prlc.catalog.load import LOADER
from prlc.schema import codec
from prlc.schema.compat import Compat, Pair

SIGNS = re.compile(r"^\s*(>=|<=|==|<|>)\s*([0-9][0-9a-z.]*)\s*$")


@cache
def compat() -> Compat:
    """The table of features. Raises CatalogError for a row that names no feature, or says no more than 'if'."""
    return read((files("prlc.catalog") / "compat.yaml").read_text("utf-8"))


def read(text: str) -> Compat:
    """A table from its text. Raises CatalogError."""
    try:
        table = codec.decode(Compat, yaml.load(text, LOADER), "catalog/compat.yaml")
    except (codec.DocumentError, yaml.YAMLError) as error:
        raise CatalogError("catalog/compat.yaml is not valid", str(error)) from error
    known = {feature.name for feature in table.features}
    ids: set[str] = set()
    for row in table.rows:
        for problem in _problems(row, known, table.stack):
            raise CatalogError(f"catalog/compat.yaml, row {row.id}: {problem}")
        if row.id in ids:
            raise CatalogError(f"catalog/compat.yaml: two rows are called {row.id}")
        ids.add(row.id)
    return table


def _problems(row: Pair, known: set[str], stack: dict[str, str]) -> list[str]:
    found = [f"no feature {name!r}" for name in (*row.features, *row.needs) if name not in known]
    if not row.features:
        found.append("it names no feature")
    if (row.verdict == "works_if") != bool(row.needs or row.probe):
        found.append("needs or probe belong to works_if, and works_if to one of them")
    found += [f"no version of {package} in the stack" for package in row.versions if package not in stack]
    found += [f"{text!r} is no range" for text in row.versions.values() if not all(map(SIGNS.match, text.split(",")))]
    return found


def applies(row: Pair, stack: dict[str, str]) -> bool:
    """True where every version of the stack lies in the row's ranges."""
    return all(in_range(stack[package], wanted) for package, wanted in row.versions.items())


def in_range(version: str, wanted: str) -> bool:
    """Whether a version satisfies '>=0.32,<0.34'; post releases and local parts count as their release.

    >>> in_range("0.32.0", ">=0.32,<0.34"), in_range("0.3.13.post1", "<0.3.13")
    (True, False)
    """
    mine = release(version)
    for part in wanted.split(","):
        match = SIGNS.match(part)
        if match is None:
            raise ValueError(f"{part!r} is no range of versions")
        sign, other = match[1], release(match[2])
        width = max(len(mine), len(other))
        a, b = (v + (0,) * (width - len(v)) for v in (mine, other))
        if not {">=": a >= b, "<=": a <= b, "==": a == b, "<": a < b, ">": a > b}[sign]:
            return False
    return True


def release(version: str) -> tuple[int, ...]:
    """(0, 3, 13) of '0.3.13.post1'."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
