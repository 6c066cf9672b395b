"""The saved flags of the programs that a bundle starts, by the first words of the command."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml
from prlc.catalog.errors import CatalogError
from prlc.catalog.load import LOADER
from prlc.schema import codec
from prlc.schema.flags import FlagList

FILES = {
    ("vllm", "serve"): "vllm-serve",
    ("vllm-router",): "vllm-router",
    ("mooncake_master",): "mooncake-master",
    ("torchrun",): "torchrun",
}


@cache
def flag_list(name: str) -> FlagList:
    """Saved flags by file name without .yaml. Raises CatalogError."""
    where = f"catalog/flags/{name}.yaml"
    try:
        return codec.decode(FlagList, yaml.load((files("prlc.catalog") / "flags" / f"{name}.yaml").read_text(), LOADER))
    except (OSError, codec.DocumentError, yaml.YAMLError) as error:
        raise CatalogError(f"{where} is not valid", str(error)) from error


def of_command(command: tuple[str, ...]) -> FlagList | None:
    """Saved flags of a command, None for a program of our own."""
    for words, name in FILES.items():
        if command[: len(words)] == words:
            return flag_list(name)
    return None
