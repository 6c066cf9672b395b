"""--pin path=value: values that replace the spec's, before anything is derived, and are checked like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from prlc.schema import positions


class PinError(ValueError):
    """A pin that names no place in the spec."""


def with_pins(text: str, pins: Mapping[str, str]) -> str:
    """The spec with these values set. Without pins the text is returned as it is, positions and all.

    Raises PinError when a path runs through a value that is not a mapping.
    """
    if not pins:
        return text
    data: Any = positions.load(text, "spec").data
    for path, value in pins.items():
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
