"""TOML files as one list of leaves, each with the place that it stands at, merged as prime-rl merges them.

Later files win, tables are merged, lists are replaced whole (prime-rl 0.6.0 to 0.8.x, docs/configuration.md).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLES = ("trainer", "orchestrator", "inference")
PLACE = re.compile(r"^(?P<cause>.*) \(at (?:line (?P<line>\d+), column (?P<col>\d+)|end of document)\)$", re.S)
HEADER = re.compile(r"^\s*\[\[?\s*([^\[\]=#]+?)\s*\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^."'\s]+))\s*(?:\.|$)""")

Path_ = tuple[str | int, ...]


class TomlError(ValueError):
    """A file that is no TOML: file, line, column and cause."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file and the block that it is the content of; '' for the whole configuration."""

    file: str
    text: str
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A key with its value. `overridden`: the later file that replaced it, '' for none."""

    path: Path_
    value: Any
    file: str
    line: int
    overridden: str = ""

    @property
    def name(self) -> str:
        """trainer.model.ep, env[0].id."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return text.removeprefix(".")

    @property
    def root(self) -> str:
        """The role whose block it stands in; '' above them."""
        return str(self.path[0]) if self.path[0] in ROLES else ""


def role_of(path: Path, data: dict[str, Any]) -> str:
    """The block of a file that is named like a role, as prime-rl names its resolved configs; '' for any other."""
    return path.stem if path.stem in ROLES and path.stem not in data else ""


def parsed(text: str, file: str) -> dict[str, Any]:
    """The document. Raises TomlError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = PLACE.match(str(error))
        if match and match["line"]:
            raise TomlError(f"{file}:{match['line']}:{match['col']}: not TOML: {match['cause']}") from error
        last = max(1, len(text.splitlines()))
        raise TomlError(f"{file}:{last}: not TOML: {match['cause'] if match else error}, at its end") from error


def leaves(sources: Sequence[Source]) -> tuple[Leaf, ...]:
    """Every key of every file in order. Raises TomlError."""
    found: list[Leaf] = []
    for source in sources:
        data, lines = parsed(source.text, source.file), _lines(source.text)
        above: Path_ = (source.role,) if source.role else ()
        new = [
            Leaf(path=(*above, *path), value=value, file=source.file, line=_line(path, lines))
            for path, value in _flat(data, ())
        ]
        found = [_after(old, new) for old in found] + new
    return tuple(found)


def _flat(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    """Leaves of a document; an empty table and a list of plain values are leaves."""
    if isinstance(value, dict) and (value or path):
        if not value:
            yield path, value
        for key, below in value.items():
            yield from _flat(below, (*path, key))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for index, below in enumerate(value):
            yield from _flat(below, (*path, index))
    elif path:
        yield path, value


def _after(old: Leaf, new: list[Leaf]) -> Leaf:
    """The leaf once a later file is merged over it."""
    if old.overridden or old.value == {}:
        return old
    mine = _replaced(old.path)
    for leaf in new:
        other = _replaced(leaf.path)
        short = min(len(mine), len(other))
        if leaf.value != {} and mine[:short] == other[:short]:
            return Leaf(path=old.path, value=old.value, file=old.file, line=old.line, overridden=leaf.file)
    return old


def _replaced(path: Path_) -> Path_:
    """The part of a path that is replaced as one: up to its first list."""
    ints = [i for i, part in enumerate(path) if isinstance(part, int)]
    return path[: ints[0]] if ints else path


def _lines(text: str) -> dict[Path_, int]:
    """Line of each key that starts a line, and of each header; of a multi-line string no line counts."""
    found: dict[Path_, int] = {}
    table: Path_ = ()
    counts: dict[Path_, int] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        header, key = HEADER.match(line), KEY.match(line)
        if header:
            table = _parts(header[1])
            if line.lstrip().startswith("[["):
                counts[table] = counts.get(table, -1) + 1
            for size in range(len(table), 0, -1):
                if table[:size] in counts:
                    table = (*table[:size], counts[table[:size]], *table[size:])
                    break
            found.setdefault(table, number)
        elif key:
            found.setdefault((*table, *_parts(key[1])), number)
            inside = next((q for q in ('"""', "'''") if line.count(q) == 1), "")
    return found


def _parts(dotted: str) -> Path_:
    return tuple(a or b or c for a, b, c in PART.findall(dotted))


def _line(path: Path_, lines: dict[Path_, int]) -> int:
    """The line of a key, or of the nearest table or inline value around it."""
    return next((lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in lines), 1)
