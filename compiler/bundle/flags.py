"""Emitted commands against the saved flags of their programs: unknown, repeated, without its value, of a wrong type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.catalog.programs import of_command
from prlc.templates import PLACEHOLDER

if TYPE_CHECKING:
    from prlc.schema.flags import Flag, FlagList
    from prlc.schema.plan import Launch

NUMBER = {"int": re.compile(r"-?\d+"), "float": re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?"),
          "bool": re.compile("true|false")}  # fmt: skip
MODULE = "-m"  # what follows is the module's own


def problems(launch: Launch) -> list[str]:
    """What the program of a launch would refuse, in words; [] also for a program of our own."""
    known = of_command(launch.command)
    return [] if known is None else list(_problems(launch, known))


def _problems(launch: Launch, known: FlagList) -> Iterator[str]:
    seen: set[str] = set()
    for words in launch.flags:
        if words[0] == MODULE or words[0].startswith(f"{MODULE} "):
            return
        name, values = words[0], words[1:]
        if "=" in name:  # gflags
            name, _, value = name.partition("=")
            values = (value, *values)
        flag = known.flags.get(name)
        if flag is None:
            yield f"{known.program} {known.version} has no flag {name}"
            continue
        if name in seen and not flag.repeats:
            yield f"{name} is given twice"
        seen.add(name)
        yield from (f"{name}: {text}" for text in _value_problems(flag, values))


def _value_problems(flag: Flag, values: tuple[str, ...]) -> Iterator[str]:
    least, most = {"none": (0, 0), "one": (1, 1), "maybe": (0, 1), "many": (0, 10**6)}[flag.takes]
    if not least <= len(values) <= most:
        yield f"{len(values)} values, it takes {flag.takes}"
    for value in values:
        if flag.type == "json":
            try:
                json.loads(value)
            except ValueError as error:
                yield f"{value!r} is no JSON: {error}"
            continue
        if PLACEHOLDER.search(value):
            continue
        if flag.choices and value not in flag.choices:
            yield f"{value!r} is none of {', '.join(flag.choices)}"
        if flag.type in NUMBER and not NUMBER[flag.type].fullmatch(value):
            yield f"{value!r} is no {flag.type}"
