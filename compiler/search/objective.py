"""What a spec wants small, as an order of whole layouts, and the longest step with which a layout can still win."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineLayout, Layout, TrainerLayout
    from prlc.schema.run import Objective

RECOMPUTE = ("none", "selective", "full")
DIGITS = 9  # of a step that count: the rest is the order in which floats were added
ROUNDING = 1 + 1e-8  # a step this much longer may still count as equal


@dataclass(frozen=True)
class Choice:
    """One whole layout with its forecast in seconds."""

    layout: Layout
    step: float
    trainer: float
    rollouts: float

    @property
    def counted(self) -> float:
        """The step in the digits that count."""
        return float(f"{self.step:.{DIGITS}g}")

    @property
    def gpus(self) -> int:
        """GPUs of the layout."""
        return self.layout.trainer.world + sum(e.gpus for e in self.layout.engines)

    @property
    def split(self) -> tuple[int, int, int]:
        """(trainer nodes, trainer ranks a node, engine nodes)."""
        mesh = self.layout.trainer
        return len(mesh.nodes), mesh.ranks_per_node, sum(len(e.nodes) for e in self.layout.engines)


def mesh_key(mesh: TrainerLayout) -> tuple[int, ...]:
    """Order of meshes that are equally fast: fewest nodes and ranks, then the plainest."""
    return (
        len(mesh.nodes),
        mesh.ranks_per_node,
        mesh.dp_replicate,
        int(mesh.offload != "none"),
        RECOMPUTE.index(mesh.activation_checkpoint),
        mesh.ep,
        mesh.cp,
    )


def engines_key(engines: tuple[EngineLayout, ...]) -> tuple[int, ...]:
    """Order of engines that are equally fast: together before apart, narrow before wide, few decode nodes first."""
    found = [len(engines)]
    for engine in reversed(engines):
        found += [engine.tp, engine.dp, engine.ep]
    return (*found, len(engines[-1].nodes))


def rank(objective: Objective, choice: Choice) -> tuple[object, ...]:
    """The smaller the better; no two layouts of one spec have the same rank."""
    step = choice.counted
    tie = (
        step,
        choice.gpus,
        choice.trainer,
        choice.rollouts,
        mesh_key(choice.layout.trainer),
        engines_key(choice.layout.engines),
    )
    if objective.step_time is not None:
        late = step > objective.step_time
        return (late, step if late else choice.gpus, *tie)
    if objective.minimize == "gpus":
        return (choice.gpus, *tie)
    if objective.minimize == "gpu_hours_per_token":
        return (choice.gpus * step, *tie)
    return tie


def step_limit(objective: Objective, best: Choice | None, gpus: int) -> float:
    """Longest step in seconds with which a layout of `gpus` GPUs can beat `best` or tie with it; negative: none can."""
    if best is None:
        return math.inf
    if objective.step_time is not None and best.counted <= objective.step_time:
        fewer = objective.step_time * ROUNDING if gpus < best.gpus else -1.0
        return best.step * ROUNDING if gpus == best.gpus else fewer
    if objective.minimize == "gpus":
        fewer = math.inf if gpus < best.gpus else -1.0
        return best.step * ROUNDING if gpus == best.gpus else fewer
    if objective.minimize == "gpu_hours_per_token":
        return best.gpus * best.step / gpus * ROUNDING
    return best.step * ROUNDING
