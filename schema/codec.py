"""Documents to dataclasses and back, by the dataclass's own annotations. No position, no message for people:
that is `prlc.schema.check`; here a wrong document is a DocumentError that lists every problem with its path."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

T = TypeVar("T")

UNITS: dict[str, dict[str, float]] = {
    "bytes": {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
              "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "seconds": {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400},
    "bytes_per_second": {"GB/s": 1e9, "MB/s": 1e6, "TB/s": 1e12, "Gbit/s": 0.125e9},
    "flops_per_second": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
}  # fmt: skip
NUMBER = re.compile(r"^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]+)$")


class DocumentError(ValueError):
    """A document does not have its dataclass's shape; `problems` lists (path, message)."""

    def __init__(self, where: str, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        self.where, self.problems = where, problems
        lines = [f"{where}: {'.'.join(map(str, path)) or '(top)'}: {text}" for path, text in problems]
        super().__init__("\n".join(lines))


def parse_quantity(text: Any, unit: str) -> float:
    """Value of '80GiB', '5min', ... in the base unit (bytes, seconds, ...). Raises ValueError with the units known."""
    match = NUMBER.match(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in UNITS[unit]:
        raise ValueError(f"{text!r} is not a number with one of the units {', '.join(UNITS[unit])}")
    return float(match[1]) * UNITS[unit][match[2]]


def format_quantity(value: float, unit: str) -> str:
    """The shortest exact text of a value, e.g. 85899345920 bytes -> '80GiB', 300 s -> '5min'."""
    best = ""
    for name, size in UNITS[unit].items():
        number = value / size
        text = f"{int(number)}" if number == int(number) else repr(number)
        if "e" in text or parse_quantity(f"{text}{name}", unit) != value:
            continue
        if not best or len(text) < len(NUMBER.match(best)[1]):  # type: ignore[index]
            best = f"{text}{name}"
    return best or f"{value!r}{next(n for n, s in UNITS[unit].items() if s == 1 or s == 1e9)}"


def _unit(kind: Any) -> str | None:
    return get_args(kind)[1] if get_origin(kind) is Annotated and get_args(kind)[1] in UNITS else None


def decode(cls: type[T], data: Any, where: str = "document") -> T:
    """Build `cls` from plain data. Raises DocumentError with every problem found."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    value = _decode(cls, data, (), problems)
    if problems:
        raise DocumentError(where, problems)
    return value  # type: ignore[no-any-return]


def _decode(kind: Any, data: Any, path: tuple[str | int, ...], problems: list[Any]) -> Any:
    unit = _unit(kind)
    if unit:
        try:
            number = parse_quantity(data, unit)
        except ValueError as error:
            problems.append((path, str(error)))
            return None
        return int(number) if get_args(kind)[0] is int else number
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for option in get_args(kind):
            trial: list[Any] = []
            value = _decode(option, data, path, trial)
            if not trial:
                return value
        # the branch that a mapping or list was meant for says most
        meant = [o for o in get_args(kind) if dataclasses.is_dataclass(o)] if isinstance(data, dict) else []
        if meant:
            return _decode(meant[0], data, path, problems)
        problems.append((path, f"{data!r} is none of: {', '.join(_name(o) for o in get_args(kind))}"))
        return None
    if origin is Literal:
        if data not in get_args(kind) or isinstance(data, bool) and True not in get_args(kind):
            problems.append((path, f"{data!r} is none of: {', '.join(map(str, get_args(kind)))}"))
        return data
    if origin is tuple:
        return _decode_tuple(get_args(kind), data, path, problems)
    if origin is dict:
        if not isinstance(data, dict):
            problems.append((path, f"{data!r} is not a mapping"))
            return {}
        return {k: _decode(get_args(kind)[1], v, (*path, k), problems) for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, path, problems)
    if kind is Any:
        return data
    if kind is type(None):
        if data is not None:
            problems.append((path, f"{data!r} is not null"))
        return None
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        problems.append((path, f"{data!r} is not of type {_name(kind)}"))
    return data


def _decode_tuple(kinds: tuple[Any, ...], data: Any, path: tuple[str | int, ...], problems: list[Any]) -> Any:
    if not isinstance(data, list | tuple):
        problems.append((path, f"{data!r} is not a list"))
        return ()
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item, (*path, i), problems) for i, item in enumerate(data))
    if len(data) != len(kinds):
        problems.append((path, f"{len(data)} items, {len(kinds)} wanted"))
        return ()
    return tuple(_decode(k, item, (*path, i), problems) for i, (k, item) in enumerate(zip(kinds, data, strict=True)))


def _decode_dataclass(cls: Any, data: Any, path: tuple[str | int, ...], problems: list[Any]) -> Any:
    if not isinstance(data, dict):
        problems.append((path, f"{data!r} is not a mapping"))
        return None
    hints = get_type_hints(cls, include_extras=True)
    known = {f.name: f for f in dataclasses.fields(cls)}
    problems.extend(((*path, key), "unknown key") for key in data if key not in known)
    values: dict[str, Any] = {}
    for name, item in known.items():
        if name in data:
            before = len(problems)
            values[name] = _decode(hints[name], data[name], (*path, name), problems)
            if len(problems) == before:
                problems.extend(((*path, name), text) for text in _bounds(item.metadata, values[name]))
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            problems.append(((*path, name), "missing"))
    if problems:
        return None
    return cls(**values)


def _bounds(metadata: Any, value: Any) -> list[str]:
    found = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        if metadata.get("minimum") is not None and value < metadata["minimum"]:
            found.append(f"{value} is below {metadata['minimum']}")
        if metadata.get("maximum") is not None and value > metadata["maximum"]:
            found.append(f"{value} is above {metadata['maximum']}")
    if isinstance(value, str) and metadata.get("pattern") and not re.search(metadata["pattern"], value):
        found.append(f"{value!r} does not match {metadata['pattern']}")
    return found


def _name(kind: Any) -> str:
    if _unit(kind):
        return f"a value in {_unit(kind)}"
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    return {type(None): "null"}.get(kind, getattr(kind, "__name__", str(kind)))


def encode(value: Any) -> Any:
    """Plain data (dict, list, str, number) of a document; quantities get their units back."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return _encode(Any, value)
    hints = get_type_hints(type(value), include_extras=True)
    return {f.name: _encode(hints[f.name], getattr(value, f.name)) for f in dataclasses.fields(value)}


def _encode(kind: Any, value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if get_origin(kind) in (Union, types.UnionType):
        unit = next((_unit(o) for o in get_args(kind) if _unit(o)), None)
    else:
        unit = _unit(kind)
    if unit:
        return format_quantity(value, unit)
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, tuple | list):
        args = get_args(kind)
        item = args[0] if args and get_origin(kind) is tuple else Any
        return [_encode(item, v) for v in value]
    if isinstance(value, dict):
        return {k: _encode(Any, v) for k, v in value.items()}
    return value


def load(cls: type[T], path: str | Path) -> T:
    """Read a YAML or JSON document. Raises OSError, yaml.YAMLError, DocumentError."""
    text = Path(path).read_text("utf-8")
    # JSON is read as JSON: YAML 1.1 takes 1e-08 for a string
    return decode(cls, json.loads(text) if Path(path).suffix == ".json" else yaml.safe_load(text), str(path))


def dump(value: Any) -> str:
    """YAML of a document: keys in declaration order, no aliases, the same bytes for the same value."""
    return yaml.safe_dump(encode(value), sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)
