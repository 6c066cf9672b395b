"""A node as preflight sees it: a run folder, an address, and expectations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.preflight.probe import Where
from prlc.schema.preflight import PreflightConfig

CONFIG = PreflightConfig(
    device="cpu", gpus=0, model="model", model_type="qwen3_moe", shared_deadline=6.0, probe_deadline=5.0
)


@pytest.fixture
def where(tmp_path: Path) -> Callable[..., Where]:
    def make(node: int = 0, addresses: tuple[str, ...] = ("127.0.0.1",), **config: Any) -> Where:
        paths = RunPaths(tmp_path / "run")
        paths.preflight(1).mkdir(parents=True, exist_ok=True)
        (paths.attempt(1) / "nodes").write_text("".join(f"{address}\n" for address in addresses))
        return Where(
            node=node, addresses=addresses, attempt=1, paths=paths, config=dataclasses.replace(CONFIG, **config),
            sysfs=tmp_path / "sys",
        )  # fmt: skip

    return make
