"""What a probe is: a function that yields findings, run beside the others, each with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.preflight import PreflightConfig


@dataclass(frozen=True)
class Where:
    """Which node a probe runs on, and what it may look at. `sysfs` is another folder in tests."""

    node: int
    addresses: tuple[str, ...]
    attempt: int
    paths: RunPaths
    config: PreflightConfig
    sysfs: Path = Path("/sys")

    @property
    def address(self) -> str:
        """Address of this node."""
        return self.addresses[self.node]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as the plan wants it. A problem stops the run, a warning is said."""

    probe: str
    text: str
    severity: Literal["problem", "warning"] = "problem"


Probe = Callable[[Where], Iterator[Finding]]


def run(probes: Sequence[tuple[str, Probe, float]], where: Where) -> list[Finding]:
    """Findings of all (name, probe, deadline in seconds), in their order; one that passes its deadline is a finding.

    A probe that hangs, e.g. on a dead network filesystem, cannot be ended: its thread is left behind.
    """
    found: dict[str, list[Finding]] = {name: [] for name, _, _ in probes}

    def one(name: str, probe: Probe) -> None:
        try:
            found[name].extend(probe(where))
        except Exception as error:  # whatever it is, the node is not as it should be
            found[name].append(Finding(name, f"{type(error).__name__}: {error}"))

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(name, probe), daemon=True) for name, probe, _ in probes]
    for thread in threads:
        thread.start()
    results: list[Finding] = []
    for (name, _, deadline), thread in zip(probes, threads, strict=True):
        thread.join(max(0.0, began + deadline - time.monotonic()))
        results += list(found[name])
        if thread.is_alive():
            results.append(Finding(name, f"no answer in {deadline:g} s"))
    return results
