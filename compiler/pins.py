"""--pin path=value: values that replace the spec's, before anything is derived, and are checked like any other."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml
from prlc.schema import positions
from prlc.schema.run import RunSpec


class PinError(ValueError):
    """A pin that names no place in the spec."""


@cache
def known_paths() -> tuple[str, ...]:
    """Every path of a run spec, mappings too."""
    return tuple(_paths(RunSpec, ()))


def _paths(kind: type, above: tuple[str, ...]) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        path = (*above, field.name)
        yield ".".join(path)
        hint = hints[field.name]
        for option in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(option) and isinstance(option, type):
                yield from _paths(option, path)


def full_path(path: str) -> str:
    """A path of the spec from its end: trainer.ep is trainer.parallel.ep. What matches none is returned as it is.

    Raises PinError where several paths end like it.

    >>> full_path("trainer.ep"), full_path("seq_len"), full_path("nodes")
    ('trainer.parallel.ep', 'sequence.seq_len', 'nodes')
    """
    known = known_paths()
    if path in known:
        return path
    wanted = path.split(".")
    found = [one for one in known if _ends(one.split("."), wanted)]
    if len(found) > 1:
        raise PinError(f"{path} could be {' or '.join(found)}")
    return found[0] if found else path


def _ends(path: list[str], wanted: list[str]) -> bool:
    """True when `path` holds the keys of `wanted` in order and ends as it."""
    keys = iter(path)
    return path[-1] == wanted[-1] and all(key in keys for key in wanted)


def with_pins(text: str, pins: Mapping[str, str]) -> str:
    """The spec with these values set. Without pins the text is returned as it is, positions and all.

    Raises PinError when a path is ambiguous or runs through a value that is not a mapping.
    """
    if not pins:
        return text
    data: Any = positions.load(text, "spec").data
    for given, value in pins.items():
        path = full_path(given)
        *parents, last = path.split(".")
        place = data
        for key in parents:
            if place.get(key) in (None, "auto"):
                place[key] = {}
            place = place[key]
            if not isinstance(place, dict):
                raise PinError(f"--pin {path}: {key} is not a mapping in the spec")
        place[last] = positions.load(value, "--pin").data
    return yaml.safe_dump(data, sort_keys=False)
