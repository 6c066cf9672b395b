"""Each probe on what exists here, and on fakes at the lowest seam: nvidia-smi, /sys, files."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prlc.runtime.preflight import checkpoint, disk, gpus, memory, network, nics, versions
from prlc.runtime.preflight.probe import Finding, Probe, Where, run
from prlc.schema.preflight import MemoryNeed, PortNeed, VersionPin

Make = Callable[..., Where]
GIB = 2**30


def texts(probe: Probe, where: Where) -> list[str]:
    return [finding.text for finding in probe(where)]


def test_a_probe_that_hangs_or_breaks_is_a_finding_and_holds_up_nobody(where: Make) -> None:
    ended = threading.Event()

    def hangs(_: Where) -> Iterator[Finding]:
        ended.wait(30)
        yield from ()

    def breaks(_: Where) -> Iterator[Finding]:
        raise OSError("stale file handle")
        yield

    def warns(_: Where) -> Iterator[Finding]:
        yield Finding("third", "odd", "warning")

    began = time.monotonic()
    found = run([("first", hangs, 0.3), ("second", breaks, 5.0), ("third", warns, 5.0)], where())
    ended.set()
    assert time.monotonic() - began < 3
    assert found == [
        Finding("first", "no answer in 0.3 s"),
        Finding("second", "OSError: stale file handle"),
        Finding("third", "odd", "warning"),
    ]


SMI = """0, NVIDIA H200, 580.95.05, 143771, 3, 0
1, NVIDIA H200, 570.10, 81559, 40000, 2
"""


def fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int = 0) -> None:
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/bash\ncat <<'E'\n{said}E\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus(where: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, SMI)
    assert texts(gpus.probe, where()) == [], "a CPU run asks for none"
    asked: dict[str, Any] = {"device": "cuda", "gpus": 3, "gpu_memory": 139 * GIB, "driver": "580"}
    assert texts(gpus.probe, where(**asked)) == [
        "2 GPUs, 3 wanted",
        "GPU 1 (NVIDIA H200) has 81559 MiB, 142336 wanted",
        "GPU 1 (NVIDIA H200) is in use: 40000 MiB are taken",
        "GPU 1 (NVIDIA H200) has 2 uncorrected memory errors since the driver was loaded",
        "driver 570.10, 580 or newer wanted",
    ]


def test_a_broken_driver_says_what_nvidia_smi_said(
    where: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, "couldn't communicate with the NVIDIA driver\n", 9)
    found = texts(gpus.probe, where(device="cuda", gpus=8))
    assert found == ["nvidia-smi: couldn't communicate with the NVIDIA driver"]


def nic(folder: Path, name: str, state: str, layer: str) -> None:
    port = folder / "class/infiniband" / name / "ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port / "link_layer").write_text(f"{layer}\n")


def test_nics(where: Make, tmp_path: Path) -> None:
    nic(tmp_path / "sys", "mlx5_0", "4: ACTIVE", "InfiniBand")
    nic(tmp_path / "sys", "mlx5_1", "1: DOWN", "InfiniBand")
    nic(tmp_path / "sys", "mlx5_2", "4: ACTIVE", "Ethernet")
    assert texts(nics.probe, where(nics=("mlx5_0", "mlx5_0:1"), fabric="infiniband")) == []
    assert texts(nics.probe, where(nics=("mlx5_1", "mlx5_2", "mlx5_9", "mlx5_0:2"), fabric="infiniband")) == [
        "mlx5_1 is down: port 1 1: DOWN",
        "mlx5_2 has link layer Ethernet, InfiniBand wanted",
        "no NIC mlx5_9; this node has: mlx5_0, mlx5_1, mlx5_2",
        "no NIC mlx5_0:2; this node has: mlx5_0, mlx5_1, mlx5_2",
    ]
    assert texts(nics.probe, where(nics=("mlx5_2",), fabric="roce")) == []


def test_versions(where: Make) -> None:
    import importlib.metadata

    there = importlib.metadata.version("pytest")
    pins = (
        VersionPin(name="pytest", version=f"{there}+local"),
        VersionPin(name="jinja2", version="1.0"),
        VersionPin(name="no-such-thing", version="2"),
    )
    first, second = texts(versions.probe, where(versions=pins))
    assert first.startswith("jinja2 3.")
    assert first.endswith("the plan wants 1.0")
    assert second == "no-such-thing is not installed, the plan wants 2"


def test_memory(where: Make) -> None:
    needs = (MemoryNeed(nodes=(0,), memory=1), MemoryNeed(nodes=(1,), memory=2**60))
    addresses = ("127.0.0.1", "127.0.0.1")
    assert texts(memory.probe, where(0, addresses, memory=needs)) == []
    (found,) = texts(memory.probe, where(1, addresses, memory=needs))
    assert found.endswith(f"the plan needs {2**30:.1f}")
    assert memory.available("MemTotal: 9 kB\nMemAvailable:  7 kB\n") == 7 * 1024


def test_limits(where: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert texts(memory.limits, where()) == ["at most 4096 open files (ulimit -Hn), 16384 wanted"]
    assert texts(memory.limits, where(nics=("mlx5_0",)))[1].startswith("locked memory is limited to 4096 B")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert texts(memory.limits, where(nics=("mlx5_0",))) == []


def test_disk_space_counts_what_the_run_has_written(where: Make) -> None:
    it = where(disk=2**60)
    (found,) = texts(disk.space, it)
    assert "the run writes up to 1073741824.0 in all" in found
    assert texts(disk.space, where(disk=1)) == []


def test_renames_and_clock_here(where: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = where()
    assert texts(disk.renames, it) == []
    assert texts(disk.clock, it) == []
    assert list(it.paths.preflight(1).iterdir()) == [], "nothing is left behind"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 9)
    (found,) = disk.clock(it)
    assert found.severity == "warning"
    assert "9.0 s off" in found.text


def test_a_filesystem_that_replaces_on_link_is_refused(where: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def link(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(os, "link", link)
    (found,) = texts(disk.renames, where())
    assert found.endswith("a hard link replaces a file")


def test_all_nodes_must_see_one_folder(where: Make) -> None:
    three = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    (found,) = texts(disk.shared, where(0, three, shared_deadline=5.5))
    assert found.startswith("no file of node 1 (10.0.0.2), 2 (10.0.0.3) is seen at ")
    others = [threading.Thread(target=lambda n=n: list(disk.shared(where(n, three)))) for n in (1, 2)]
    for other in others:
        other.start()
    assert texts(disk.shared, where(0, three)) == []
    for other in others:
        other.join()


def test_a_taken_port_is_named_with_its_holder(where: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        needs = (
            PortNeed(node=0, port=port, owner="engine-3 http"),
            PortNeed(node=1, port=port, owner="another node's"),
        )
        (found,) = texts(network.ports, where(ports=needs))
    assert found.startswith(f"127.0.0.1:{port} (engine-3 http) is held by process ")
    assert texts(network.ports, where(ports=needs)) == []


def test_an_address_of_another_host_is_noticed(where: Make) -> None:
    assert "192.0.2.1 is no address of" in " ".join(texts(network.names, where(0, ("192.0.2.1",))))
    assert texts(network.names, where()) == []


def weights(path: Path, tensors: dict[str, tuple[str, list[int], int]], cut: int = 0) -> None:
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(text)) + text + bytes(at))[: -cut or None])


def model(where: Where, **config: Any) -> Path:
    folder = where.paths.root / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", **config}))
    return folder


def test_a_checkpoint_is_whole(where: Make) -> None:
    it = where(checkpoint_nodes=(0,))
    assert texts(checkpoint.probe, it) == ["model is neither a folder nor in this node's hub cache"]
    folder = model(it)
    assert "no model.safetensors.index.json and no *.safetensors" in texts(checkpoint.probe, it)[0]
    weights(folder / "a.safetensors", {"w": ("BF16", [4, 4], 32)})
    weights(folder / "b.safetensors", {"v": ("BF16", [4, 4], 32)}, cut=5)
    (found,) = texts(checkpoint.probe, it)
    assert "b.safetensors" in found
    assert "the file is not whole" in found
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "a.safetensors", "x": "c.safetensors"}})
    )
    assert "c.safetensors" in texts(checkpoint.probe, it)[0]
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))
    assert texts(checkpoint.probe, it) == []
    assert texts(checkpoint.probe, where(checkpoint_nodes=(0,), model_type="glm")) == [
        f"{folder} is a qwen3_moe, the plan is for glm"
    ]
    assert texts(checkpoint.probe, where(checkpoint_nodes=(1,), model_type="glm")) == [], "it does not read it"


def test_fp8_weights_have_their_scales(where: Make) -> None:
    it = where(checkpoint_nodes=(0,))
    folder = model(it, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    weight, scale = ("F8_E4M3", [256, 129], 256 * 129), ("F32", [2, 2], 16)
    weights(folder / "a.safetensors", {"w.weight": weight, "w.weight_scale_inv": scale})
    assert texts(checkpoint.probe, it) == []
    weights(folder / "a.safetensors", {"w.weight": weight, "w.weight_scale_inv": ("F32", [2, 1], 8)})
    assert texts(checkpoint.probe, it) == ["w.weight wants w.weight_scale_inv [2, 2], found [2, 1]"]
    weights(folder / "a.safetensors", {"w.weight": weight})
    assert texts(checkpoint.probe, it) == ["w.weight wants w.weight_scale_inv [2, 2], found None"]
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_moe"}))
    assert "without quantization_config.weight_block_size" in texts(checkpoint.probe, it)[0]
