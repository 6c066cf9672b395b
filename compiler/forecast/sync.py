"""Seconds of a weight update through the shared filesystem: the trainer writes, the engines stop and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates
    from prlc.compiler.layout import Layout
    from prlc.schema.hardware import Gpu
    from prlc.schema.run import RunSpec

PUBLISHED_WIDTH = {"fp32": 4, "bf16": 2, "fp8": 2}  # bytes a parameter: fp8 engines quantize on load


@dataclass(frozen=True)
class SyncTime:
    """Seconds."""

    write: float  # by the trainer's nodes, side by side
    pause: float  # of the engines, reading included


def sync_time(spec: RunSpec, facts: ModelFacts, gpu: Gpu, rates: Rates, layout: Layout) -> SyncTime:
    """Size / (rate of a node x nodes), for writers and for readers; a node's page cache serves its other servers."""
    size, room = facts.total_params * PUBLISHED_WIDTH[spec.inference.precision], rates.network
    readers = max(1, len({n for e in layout.engines for n in e.nodes}))
    return SyncTime(
        write=size / (room["filesystem_write"] * len(layout.trainer.nodes)),
        pause=size / (room["filesystem_read"] * readers) + room["update_pause"],
    )


def exposed(spec: RunSpec, sync: SyncTime, trainer: float, rollouts: float) -> float:
    """The engines' stop, and what the trainer still writes when the next batch is there.

    With a lag bound of 0 nothing is generated while the trainer writes, so all of it shows.
    """
    slack = max(0.0, rollouts - trainer) if spec.algorithm.max_off_policy_steps else 0.0
    return sync.pause + max(0.0, sync.write - slack)
