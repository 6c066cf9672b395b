"""Reads the coefficients of the memory ledgers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import yaml
from prlc.catalog.errors import CatalogError
from prlc.catalog.load import LOADER
from prlc.schema import codec
from prlc.schema.memory import EngineMemory, TrainerMemory

T = TypeVar("T", TrainerMemory, EngineMemory)


@cache
def trainer_memory(name_or_path: str = "memory-trainer") -> TrainerMemory:
    """Coefficients of a training process, by file name in catalog/kernels or by path. Raises CatalogError."""
    return _read(TrainerMemory, name_or_path)


@cache
def engine_memory(name_or_path: str = "memory-engine") -> EngineMemory:
    """Coefficients of an engine process, by file name in catalog/kernels or by path. Raises CatalogError."""
    return _read(EngineMemory, name_or_path)


def _read(cls: type[T], name_or_path: str) -> T:
    file = Path(name_or_path)
    named = files("prlc.catalog") / "kernels" / f"{name_or_path}.yaml"
    try:
        text = (named if name_or_path == file.name and named.is_file() else file).read_text("utf-8")
        return codec.decode(cls, yaml.load(text, LOADER), name_or_path)
    except codec.DocumentError as error:
        raise CatalogError(f"{name_or_path} is not a valid file of memory coefficients", str(error)) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CatalogError(f"{name_or_path} cannot be read: {error}") from error
