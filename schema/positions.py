"""YAML with positions: plain data, and for every path where its key and its value stand in the text.

Scalars are read by YAML 1.2's core schema: `1e-6` is a float, and yes, no, on and off are strings. A path is
a tuple of mapping keys and list indexes, () being the whole document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from prlc.schema.diagnostics import Span

Path = tuple[str | int, ...]

MAX_NODES = 200_000  # aliases can make a small text huge
NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
TAG = "tag:yaml.org,2002:"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own name for its table)


for _name, _pattern, _first in (
    ("null", NULL, ["~", "n", "N", ""]),
    ("bool", BOOL, list("tTfF")),
    ("int", INT, list("-+0123456789")),
    ("float", FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(TAG + _name, _pattern, _first)


@dataclass(frozen=True)
class Fault:
    """Why a text is no YAML document, and where."""

    message: str
    span: Span


@dataclass(frozen=True)
class Duplicate:
    """A key that a mapping holds twice; the later value counts."""

    path: Path
    first: Span
    second: Span


@dataclass
class Positioned:
    """Data of a document with positions; `error` is set, and data None, where the text is no YAML."""

    data: Any = None
    key_spans: dict[Path, Span] = field(default_factory=dict)
    value_spans: dict[Path, Span] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)
    error: Fault | None = None


class _Refused(Exception):
    def __init__(self, message: str, node: yaml.Node) -> None:
        super().__init__(message)
        self.message, self.node = message, node


def load(text: str, filename: str) -> Positioned:
    """Read one YAML (or JSON) document. Never raises for what the text holds: see `Positioned.error`."""
    lines = text.splitlines() or [""]
    builder = _Builder(filename, lines)
    try:
        node = _compose(text)
        if node is not None:
            builder.out.data = builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, col = (mark.line, mark.column) if mark else (0, 0)
        message = ", ".join(part for part in (error.problem, error.context) if part)
        return Positioned(error=Fault(message, _point(filename, lines, line, col)))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, col = before.count("\n"), len(before) - before.rfind("\n") - 1
        return Positioned(error=Fault(str(error.reason), _point(filename, lines, line, col)))
    except _Refused as refused:
        return Positioned(error=Fault(refused.message, builder.span(refused.node)))
    except RecursionError:
        return Positioned(error=Fault("nested too deeply", _point(filename, lines, 0, 0)))
    return builder.out


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()  # type: ignore[no-any-return]
    finally:
        loader.dispose()


def _point(filename: str, lines: list[str], line: int, col: int) -> Span:
    """One character; past the end of the text: the end of its last line."""
    if line >= len(lines):
        line, col = len(lines) - 1, len(lines[-1])
    return Span(filename, line + 1, col + 1, 1)


class _Builder:
    """Nodes to data; fills `out` on the way."""

    def __init__(self, filename: str, lines: list[str]) -> None:
        self.filename, self.lines, self.out = filename, lines, Positioned()
        self.open: set[int] = set()
        self.count = 0

    def span(self, node: yaml.Node) -> Span:
        """Where a node stands; of one that goes over several lines, its first line."""
        start, end = node.start_mark, node.end_mark
        line = self.lines[start.line] if start.line < len(self.lines) else ""
        stop = end.column if end.line == start.line else len(line.split(" #")[0].rstrip())
        return Span(self.filename, start.line + 1, start.column + 1, max(1, stop - start.column))

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if id(node) in self.open:
            raise _Refused("an alias stands inside its own anchor", node)
        if self.count > MAX_NODES:
            raise _Refused(f"more than {MAX_NODES} values", node)
        self.out.value_spans[path] = self.span(node)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
                return self._mapping(node, path)
            raise _Refused(f"tag {node.tag.replace(TAG, '!!')} is not known here", node)
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[Any, Any]:
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _Refused("a key must be a plain word", key_node)
            key = _scalar(key_node)
            here, span = (*path, key), self.span(key_node)
            if key in data:
                self.out.duplicates.append(Duplicate(here, self.out.key_spans[here], span))
            self.out.key_spans[here] = span
            data[key] = self.build(value_node, here)
        return data


def _scalar(node: yaml.ScalarNode) -> Any:
    text, kind = node.value, node.tag.removeprefix(TAG)
    if kind in ("str", "!"):
        return text
    if kind == "null" and NULL.match(text):
        return None
    if kind == "bool" and BOOL.match(text):
        return text.lower() == "true"
    if kind == "int" and INT.match(text):
        if len(text) > 300:
            raise _Refused("a number of more than 300 digits", node)
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if kind == "float" and FLOAT.match(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise _Refused(f"{text!r} is no {node.tag.replace(TAG, '!!')}", node)
