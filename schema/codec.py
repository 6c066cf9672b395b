"""Documents to dataclasses and back, by the dataclass's own annotations. No position, no message for people:
that is `prlc.schema.check`. Here a wrong document is a DocumentError that lists every problem and path."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from dataclasses import dataclass
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from prlc.schema import positions

T = TypeVar("T")
Where = tuple[str | int, ...]

UNITS: dict[str, dict[str, float]] = {
    "bytes": {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
              "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "seconds": {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400},
    "bytes_per_second": {"GB/s": 1e9, "MB/s": 1e6, "TB/s": 1e12, "Gbit/s": 0.125e9},
    "flops_per_second": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
}  # fmt: skip
NAMES: dict[Any, str] = {
    type(None): "null", str: "text", int: "a whole number", float: "a number", bool: "true or false",
}  # fmt: skip
SHOWN: dict[Any, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
UNIT_EXAMPLES = {
    "bytes": ("80GiB", "512MiB"),
    "seconds": ("5min", "30s", "24h"),
    "bytes_per_second": ("400GB/s", "400Gbit/s"),
    "flops_per_second": ("800TFLOP/s",),
}
NUMBER = re.compile(r"^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]+)$")


ProblemKind = Literal["unknown", "missing", "type", "choice", "unit", "bound"]


@dataclass(frozen=True)
class Problem:
    """One thing wrong: where, what, of which kind. `choices` are the keys, values or units that would do;
    `example` is a value that would do for a missing key, as YAML."""

    path: Where
    message: str
    kind: ProblemKind
    choices: tuple[str, ...] = ()
    example: str = ""


class DocumentError(ValueError):
    """A document does not have its dataclass's shape; `problems` lists all that is wrong with it."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        self.where, self.problems = where, problems
        lines = [f"{where}: {'.'.join(map(str, p.path)) or '(top)'}: {p.message}" for p in problems]
        super().__init__("\n".join(lines))


def parse_quantity(text: Any, unit: str) -> float:
    """Value of '80GiB', '5min', ... in the base unit (bytes, seconds, ...). Raises ValueError."""
    match = NUMBER.match(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in UNITS[unit] or float(match[1]) * UNITS[unit][match[2]] == math.inf:
        raise ValueError(f"{text!r} is not a number with one of the units {', '.join(UNITS[unit])}")
    with localcontext(prec=60):  # decimal, so that every float has a text that gives it back
        return float(Decimal(match[1]) * Decimal(str(UNITS[unit][match[2]])))


def format_quantity(value: float, unit: str) -> str:
    """The shortest exact text of a value, e.g. 85899345920 bytes -> '80GiB', 300 s -> '5min'."""
    best = ""
    for name, size in UNITS[unit].items():
        for text in _numbers(value, size):
            if parse_quantity(f"{text}{name}", unit) != value:
                continue
            if not best or len(text) < len(NUMBER.match(best)[1]):  # type: ignore[index]
                best = f"{text}{name}"
            break
    return best


def _numbers(value: float, size: float) -> list[str]:
    """Texts of value / size without an exponent, the shortest first; the last ones have digits to spare."""
    with localcontext(prec=60) as context:
        exact, texts = Decimal(value) / Decimal(str(size)), []
        for digits in (15, 16, 17, 18, 20, 25):
            context.prec = digits
            texts.append(f"{exact.normalize():f}")
    return texts


def unit_of(kind: Any) -> str | None:
    """Unit family of a quantity's annotation, e.g. 'bytes'; None for any other annotation."""
    return get_args(kind)[1] if get_origin(kind) is Annotated and get_args(kind)[1] in UNITS else None


def decode(cls: type[T], data: Any, where: str = "document") -> T:
    """Build `cls` from plain data. Raises DocumentError with every problem found."""
    problems: list[Problem] = []
    value = _decode(cls, data, (), problems)
    if problems:
        raise DocumentError(where, problems)
    return value  # type: ignore[no-any-return]


def _decode(kind: Any, data: Any, path: Where, problems: list[Problem]) -> Any:
    unit = unit_of(kind)
    if unit:
        try:
            number = parse_quantity(data, unit)
        except ValueError as error:
            problems.append(Problem(path, str(error), "unit", tuple(UNITS[unit])))
            return None
        return int(number) if get_args(kind)[0] is int else number
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), data, path, problems)
    if origin is Literal:
        if not any(data == choice and type(data) is type(choice) for choice in get_args(kind)):
            choices = tuple(map(str, get_args(kind)))
            problems.append(Problem(path, f"{data!r} is none of: {', '.join(choices)}", "choice", choices))
        return data
    if origin is tuple:
        return _decode_tuple(get_args(kind), data, path, problems)
    if origin is dict:
        if not isinstance(data, dict):
            problems.append(_wrong_type(path, data, "a mapping"))
            return {}
        return {k: _decode(get_args(kind)[1], v, (*path, k), problems) for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, path, problems)
    if kind is Any:
        return data
    if kind is type(None):
        if data is not None:
            problems.append(_wrong_type(path, data, "null"))
        return None
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        problems.append(_wrong_type(path, data, _name(kind)))
    return data


def _decode_union(options: tuple[Any, ...], data: Any, path: Where, problems: list[Problem]) -> Any:
    for option in options:
        trial: list[Problem] = []
        value = _decode(option, data, path, trial)
        if not trial:
            return value
    # the branch that the value was meant for says most
    solid = [option for option in options if option is not type(None)]
    meant = [o for o in solid if isinstance(data, dict) and dataclasses.is_dataclass(o)] or solid
    if len(meant) == 1:
        return _decode(meant[0], data, path, problems)
    units = tuple(dict.fromkeys(name for o in meant if (unit := unit_of(o)) for name in UNITS[unit]))
    if units and all(unit_of(o) for o in meant):
        text = f"{data!r} is not a number with one of the units {', '.join(units)}"
        problems.append(Problem(path, text, "unit", units))
        return None
    choices = tuple(c for o in meant for c in _choices(o))
    names = [name for o in meant for name in (_choices(o) or (_name(o),))]
    shown = SHOWN.get(type(data), repr(data))
    text = f"{shown} is none of: {', '.join(names)}"
    problems.append(Problem(path, text, "choice" if len(choices) == len(names) else "type", choices))
    return None


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _wrong_type(path: Where, data: Any, wanted: str) -> Problem:
    shown = SHOWN.get(type(data), repr(data))
    return Problem(path, f"{shown} is not {wanted}", "type")


def _decode_tuple(kinds: tuple[Any, ...], data: Any, path: Where, problems: list[Problem]) -> Any:
    if not isinstance(data, list | tuple):
        problems.append(_wrong_type(path, data, "a list"))
        return ()
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item, (*path, i), problems) for i, item in enumerate(data))
    if len(data) != len(kinds):
        problems.append(Problem(path, f"{len(data)} items, {len(kinds)} wanted", "type"))
        return ()
    return tuple(_decode(k, item, (*path, i), problems) for i, (k, item) in enumerate(zip(kinds, data, strict=True)))


def _decode_dataclass(cls: Any, data: Any, path: Where, problems: list[Problem]) -> Any:
    if not isinstance(data, dict):
        problems.append(_wrong_type(path, data, "a mapping"))
        return None
    hints = get_type_hints(cls, include_extras=True)
    known = {f.name: f for f in dataclasses.fields(cls)}
    problems.extend(Problem((*path, k), "unknown key", "unknown", tuple(known)) for k in data if k not in known)
    values: dict[str, Any] = {}
    for name, item in known.items():
        if name in data:
            before = len(problems)
            values[name] = _decode(hints[name], data[name], (*path, name), problems)
            if len(problems) == before:
                problems.extend(Problem((*path, name), text, "bound") for text in _bounds(item.metadata, values[name]))
        elif required(item):
            problems.append(Problem((*path, name), "missing", "missing", example=_example(hints[name], item)))
    if problems:
        return None
    return cls(**values)


def required(item: dataclasses.Field[Any]) -> bool:
    """Whether a document must have this key."""
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _example(kind: Any, item: Any) -> str:
    """A value that would do for a required field, as one line of YAML."""
    metadata = item.metadata
    if metadata.get("examples"):
        return _flow(metadata["examples"][0])
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        needed = [f for f in dataclasses.fields(kind) if required(f)]
        return "{" + ", ".join(f"{f.name}: {_example(hints[f.name], f)}" for f in needed) + "}"
    unit, origin = unit_of(kind), get_origin(kind)
    if unit:
        return UNIT_EXAMPLES[unit][0]
    if origin in (Union, types.UnionType):
        return _example(get_args(kind)[0], item)
    if origin is Literal:
        return _flow(get_args(kind)[0])
    low = metadata.get("minimum")
    number = 1 if low is None else low
    plain = {str: f"<{item.name}>", bool: "true", int: f"{number}", float: f"{float(number)}"}
    return plain.get(kind, "[]" if origin is tuple else "{}")


def _flow(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else value


def _bounds(metadata: Any, value: Any) -> list[str]:
    found = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        bounded = metadata.get("minimum") is not None or metadata.get("maximum") is not None
        if bounded and not math.isfinite(value):
            return [f"{value} is not a finite number"]
        if metadata.get("minimum") is not None and value < metadata["minimum"]:
            found.append(f"{value} is below {metadata['minimum']}")
        if metadata.get("maximum") is not None and value > metadata["maximum"]:
            found.append(f"{value} is above {metadata['maximum']}")
    if isinstance(value, str) and metadata.get("pattern") and not re.search(metadata["pattern"], value):
        found.append(f"{value!r} does not match {metadata['pattern']}")
    return found


def _name(kind: Any) -> str:
    if unit_of(kind):
        return f"a value in {unit_of(kind)}"
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if dataclasses.is_dataclass(kind) or get_origin(kind) is dict:
        return "a mapping"
    if get_origin(kind) is tuple:
        return "a list"
    return NAMES.get(kind, str(kind))


def encode(value: Any) -> Any:
    """Plain data (dict, list, str, number) of a document; quantities get their units back."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return encode_as(Any, value)
    hints = get_type_hints(type(value), include_extras=True)
    return {f.name: encode_as(hints[f.name], getattr(value, f.name)) for f in dataclasses.fields(value)}


def encode_as(kind: Any, value: Any) -> Any:
    """Plain data of a value that is annotated with `kind`."""
    if value is None or isinstance(value, str | bool):
        return value
    if get_origin(kind) in (Union, types.UnionType):
        unit = next((unit_of(o) for o in get_args(kind) if unit_of(o)), None)
    else:
        unit = unit_of(kind)
    if unit:
        return format_quantity(value, unit)
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, tuple | list):
        args = get_args(kind)
        item = args[0] if args and get_origin(kind) is tuple else Any
        return [encode_as(item, v) for v in value]
    if isinstance(value, dict):
        return {k: encode_as(Any, v) for k, v in value.items()}
    return value


def load(cls: type[T], path: str | Path) -> T:
    """Read a YAML (1.2 scalars) or JSON document. Raises OSError, UnicodeDecodeError, DocumentError."""
    document = positions.load(Path(path).read_text("utf-8"), str(path))
    if document.error:
        fault = document.error
        raise DocumentError(str(path), [Problem((), f"line {fault.span.line}: {fault.message}", "type")])
    return decode(cls, document.data, str(path))


class _Dumper(yaml.SafeDumper):
    """Quotes texts that YAML 1.2 would read as numbers, too, such as 1e-6 and 0o17."""


for _tag, _pattern in (("float", positions.FLOAT), ("int", positions.INT)):
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, list("-+.0123456789"))


def dump(value: Any) -> str:
    """YAML of a document: keys in declaration order, no aliases, the same bytes for the same value."""
    return yaml.dump(
        encode(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False
    )
