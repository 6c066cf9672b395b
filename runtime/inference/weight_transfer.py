"""The weight-transfer backend `prlc_fs`: an engine takes its new weights from a checkpoint folder.

The folder is checked before a weight of the engine is touched, so a rejected folder leaves the old weights
serving. vLLM's order is start_weight_update, update_weights {"path": folder}, finish_weight_update; all of
the work is in the second, because only that one can refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

COMPLETE = "COMPLETE"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

Shapes = dict[str, tuple[int, ...]]


class FolderError(RuntimeError):
    """A checkpoint folder cannot be taken; the message says why and which weights serve now."""


def tensor_files(folder: Path) -> dict[str, str]:
    """{tensor name: file name} of a checkpoint folder, by its index or its single file.

    Raises FolderError where neither is there or one cannot be read.
    """
    index = folder / INDEX
    try:
        if index.is_file():
            entries = json.loads(index.read_text("utf-8"))["weight_map"]
            found = {str(name): str(file) for name, file in entries.items()}
            if any(Path(file).name != file for file in found.values()):
                raise FolderError(f"{index} names a file outside its folder")
        elif (folder / SINGLE).is_file():
            with safe_open(folder / SINGLE, framework="pt") as file:
                found = dict.fromkeys(file.keys(), SINGLE)
        else:
            raise FolderError(f"{folder} has neither {INDEX} nor {SINGLE}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise FolderError(f"{folder} cannot be read: {error}") from error
    if not found:
        raise FolderError(f"{folder} has no tensors")
    return found


def read_shapes(folder: Path, files: dict[str, str]) -> Shapes:
    """Shapes of `files`' tensors by the headers alone; a truncated file has no readable header.

    Raises FolderError for a file that cannot be read or lacks a tensor.
    """
    shapes: Shapes = {}
    for name in sorted(set(files.values())):
        try:
            with safe_open(folder / name, framework="pt") as file:
                held = set(file.keys())
                for tensor in (tensor for tensor, where in files.items() if where == name):
                    if tensor not in held:
                        raise FolderError(f"{folder / name} lacks the tensor {tensor}")
                    shapes[tensor] = tuple(file.get_slice(tensor).get_shape())
        except (OSError, SafetensorError) as error:
            raise FolderError(f"{folder / name} cannot be read: {error}") from error
    return shapes


def compare(shapes: Shapes, known: Shapes, same_names: bool) -> None:
    """Raise FolderError where a tensor's shape is not `known`'s or, with `same_names`, names are not the
    same.
    """
    wrong = [name for name, shape in shapes.items() if known.get(name, shape) != shape]
    if wrong:
        name = wrong[0]
        raise FolderError(f"{len(wrong)} tensors of another shape: {name} {shapes[name]} not {known[name]}")
    if same_names and shapes.keys() != known.keys():
        names = sorted(shapes.keys() ^ known.keys())
        raise FolderError(f"{len(names)} tensors missing or unknown, the first is {names[0]}")
    if not shapes.keys() & known.keys() and known:
        raise FolderError("no tensor has a name of the engine's model: another model's folder")


def read_tensors(folder: Path, files: dict[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) in the order of layers, so that at most one layer's weights are held at a time."""

    def place(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"\.", name)]

    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(safe_open(folder / name, framework="pt")) for name in sorted(set(files.values()))
        }
        for name in sorted(files, key=place):
            yield name, opened[files[name]].get_tensor(name)


@dataclass
class FolderInit(WeightTransferInitInfo):
    """Nothing to set up."""


@dataclass
class FolderUpdate(WeightTransferUpdateInfo):
    """`path`: absolute path of a checkpoint folder that every worker of the engine can read."""

    path: str = ""


class FolderEngine(WeightTransferEngine[FolderInit, FolderUpdate]):
    """Loads checkpoint folders into the live model, layer by layer.

    A folder needs its file COMPLETE; the one that the engine started with, version 0, does not.
    """

    init_info_cls = FolderInit
    update_info_cls = FolderUpdate

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.base = Path(self.model_config.model)
        self.serving = self.base
        self.known: Shapes | None = None  # of the last published folder taken

    def init_transfer_engine(self, init_info: FolderInit) -> None:
        """Nothing: a folder needs no connection."""

    def start_weight_update(self) -> None:
        """Nothing: the model is not touched before the folder has been checked."""

    def receive_weights(self, update_info: FolderUpdate) -> None:
        """Check the folder, then load it.

        Raises FolderError: for a rejected folder nothing has changed; where loading itself failed the
        weights that served before are loaded again. Where that fails too it raises SystemExit, which ends
        the worker and with it the server: an engine without defined weights must not serve.
        """
        folder = Path(update_info.path)
        files, shapes = self._check(folder)
        try:
            self._load(folder, files)
        except Exception as error:
            try:
                self._load(self.serving, tensor_files(self.serving))
            except Exception as second:
                raise SystemExit(
                    f"loading {folder} failed ({error!r}) and so did going back to {self.serving} "
                    f"({second!r}): this engine ends"
                ) from error
            raise FolderError(f"loading {folder} failed ({error!r}); {self.serving} serves again") from error
        self.serving = folder
        if not (self.base.is_dir() and folder.samefile(self.base)):
            self.known = shapes

    def finish_weight_update(self) -> None:
        """Nothing: the model is whole after each folder."""

    def shutdown(self) -> None:
        """Nothing is held."""

    def _check(self, folder: Path) -> tuple[dict[str, str], Shapes]:
        if not folder.is_absolute() or not folder.is_dir():
            raise FolderError(f"{str(folder)!r} is not an absolute path of a folder; {self.serving} serves on")
        try:
            is_base = self.base.is_dir() and folder.samefile(self.base)
            if not is_base and not (folder / COMPLETE).is_file():
                raise FolderError(f"{folder} has no file {COMPLETE}")
            files = tensor_files(folder)
            shapes = read_shapes(folder, files)
            same_names = self.known is not None and not is_base
            compare(shapes, self.known or self._base_shapes(), same_names)
        except FolderError as error:
            raise FolderError(f"{error}; {self.serving} serves on") from error
        return files, shapes

    def _base_shapes(self) -> Shapes:
        """Shapes of the checkpoint that the engine started with; none where it was not a local folder."""
        return read_shapes(self.base, tensor_files(self.base)) if self.base.is_dir() else {}

    def _load(self, folder: Path, files: dict[str, str]) -> None:
        """Load; the layers are put back in place even on an error, none stays without storage."""
        initialize_layerwise_reload(self.model)
        try:
            self.model.load_weights(read_tensors(folder, files))
        finally:
            finalize_layerwise_reload(self.model, self.model_config)
