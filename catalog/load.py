"""Reads one entry of the catalog. Nobody else opens its files; only the file that was asked for is read."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from prlc.catalog import huggingface
from prlc.catalog.errors import CatalogError, unknown
from prlc.schema import codec
from prlc.schema.hardware import Cluster, Gpu
from prlc.schema.kernels import Kernels
from prlc.schema.model import Model

Kind = Literal["model", "gpu", "cluster", "kernels"]
FOLDERS: dict[Kind, str] = {"model": "models", "gpu": "gpus", "cluster": "clusters", "kernels": "kernels"}
# libyaml parses ten times faster; the pure-Python loader reads the same documents
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
T = TypeVar("T", Model, Gpu, Cluster, Kernels)


def names(kind: Kind) -> tuple[str, ...]:
    """Names of that kind in the catalog, sorted."""
    found = sorted(f.name.removesuffix(".yaml") for f in _folder(kind).iterdir() if f.name.endswith(".yaml"))
    return tuple(name for name in found if not name.startswith("memory-"))  # of the ledgers, prlc.catalog.memory


def model(name_or_path: str | Path) -> Model:
    """A model by catalog name, by the path of a model file, of a config.json or of a folder with one.

    Raises CatalogError.
    """
    found = _named(Model, "model", str(name_or_path))
    if found is not None:
        return found
    path = _path("model", name_or_path)
    if path.is_dir() or path.suffix == ".json":
        return huggingface.read(path)
    return _decode(Model, path, str(path))


def gpu(name: str) -> Gpu:
    """A GPU by catalog name. Raises CatalogError."""
    found = _named(Gpu, "gpu", name)
    if found is None:
        raise unknown("gpu", name, names("gpu"))
    return found


def cluster(name_or_path: str | Path) -> Cluster:
    """A cluster by catalog name or by the path of a cluster file. Raises CatalogError."""
    found = _named(Cluster, "cluster", str(name_or_path))
    if found is not None:
        return found
    path = _path("cluster", name_or_path)
    if path.is_dir():
        raise CatalogError(f"{path} is a folder, not a cluster file", "give the YAML file in it")
    return _decode(Cluster, path, str(path))


def text(kind: Kind, name_or_path: str | Path) -> tuple[str, str] | None:
    """(name to show, text) of the file that an entry was read from; None where it cannot be read again."""
    name = str(name_or_path)
    file: Traversable | Path = _folder(kind) / f"{name}.yaml"
    shown = f"catalog/{FOLDERS[kind]}/{name}.yaml"
    if name != Path(name).name or not file.is_file():
        path = Path(name_or_path).expanduser()
        file = path / "config.json" if path.is_dir() else path
        shown = str(file)
    try:
        return shown, file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def kernels(name_or_path: str | Path) -> Kernels:
    """Coefficients of the forecast by catalog name (the GPU's) or by the path of a file. Raises CatalogError."""
    found = _named(Kernels, "kernels", str(name_or_path))
    if found is not None:
        return found
    path = _path("kernels", name_or_path)
    if path.is_dir():
        raise CatalogError(f"{path} is a folder, not a kernels file", "give the YAML file in it")
    return _decode(Kernels, path, str(path))


def measured(kind: Literal["model", "gpu"], name: str) -> Model | Gpu | None:
    """A model or GPU that only measurements name: in catalog/kernels, never in plans. None: unknown."""
    folder = files("prlc.catalog") / "kernels" / FOLDERS[kind]
    file = folder / f"{name}.yaml"
    if name != Path(name).name or not file.is_file():
        return None
    where = f"measured {kind} {name}"
    return _decode(Model, file, where) if kind == "model" else _decode(Gpu, file, where)


@cache
def _folder(kind: Kind) -> Traversable:
    return files("prlc.catalog") / FOLDERS[kind]


def _named(cls: type[T], kind: Kind, name: str) -> T | None:
    if name != Path(name).name:
        return None
    file = _folder(kind) / f"{name}.yaml"
    return _decode(cls, file, f"catalog {kind} {name}") if file.is_file() else None


def _path(kind: Kind, name_or_path: str | Path) -> Path:
    path = Path(name_or_path).expanduser()
    if path.exists():
        return path
    looks_like_path = isinstance(name_or_path, Path) or path.suffix in (".yaml", ".yml", ".json")
    if looks_like_path or str(name_or_path).startswith((".", "/", "~")):
        raise CatalogError(f"no such {kind} file or folder: {name_or_path}", f"or one of: {', '.join(names(kind))}")
    raise unknown(kind, path.name, names(kind))  # 'org/Name' of the hub: its last part is close to our name


def _decode(cls: type[T], file: Traversable | Path, where: str) -> T:
    try:
        return codec.decode(cls, yaml.load(file.read_text("utf-8"), LOADER), where)
    except codec.DocumentError as error:
        raise CatalogError(f"{where} is not a valid {cls.__name__.lower()} entry", str(error)) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CatalogError(f"{where} cannot be read: {error}") from error
