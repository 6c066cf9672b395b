"""catalog/flags/*.yaml: the flags of a program of one version, saved from its own parser or help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import doc


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag."""

    takes: Literal["none", "one", "many", "maybe"] = doc("How many values follow.", default="one")
    type: Literal["text", "int", "float", "bool", "json"] = doc("What a value is.", default="text")
    choices: tuple[str, ...] = doc("The values that it may have; empty: any.", default=())
    repeats: bool = doc("True where the flag may be given several times.", default=False)


@dataclass(frozen=True, kw_only=True)
class FlagList:
    """All flags of a program."""

    program: str = doc("First words of the command.")
    package: str = doc("Distribution that has it.")
    version: str = doc("Version that the flags were read from.")
    source: str = doc("How they were read.")
    flags: dict[str, Flag] = doc("Flag with its dashes to what it takes.")
