"""Every legal mesh of the trainer on a given number of nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from prlc.compiler.layout import TrainerLayout

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.schema.run import RunSpec

CP_DEGREES = (1, 2, 4, 8)
EP_DEGREES = (1, 2, 4, 8, 16, 32, 64)


def pinned(value: int | str, options: tuple[int, ...]) -> tuple[int, ...]:
    """The options, or the one value that the spec holds."""
    return options if value == "auto" else (int(value),)


def meshes(spec: RunSpec, facts: ModelFacts, world: int) -> Iterator[tuple[int, int, int, int]]:
    """(dp_replicate, dp_shard, cp, ep) with dp_replicate x dp_shard x cp = world, ep % cp == 0,
    (dp_shard x cp) % ep == 0, num_experts % ep == 0 and seq_len % (2 x cp) == 0 (both halves of a rank's share).

    Source: torchtitan 0.3.0 ParallelDims; the head-tail balancer of context parallelism.
    """
    asked = spec.trainer.parallel

    def hold(name: str) -> int | str:
        return "auto" if asked == "auto" else getattr(asked, name)

    replicas = (1,) if hold("dp_replicate") == "auto" else (int(hold("dp_replicate")),)
    cps = pinned(hold("cp"), CP_DEGREES)
    eps = pinned(hold("ep"), EP_DEGREES if facts.num_experts else (1,))
    for replicate, cp, ep in itertools.product(replicas, cps, eps):
        if world % (replicate * cp) or spec.sequence.seq_len % (2 * cp if cp > 1 else 1):
            continue
        shard = world // (replicate * cp)
        if hold("dp_shard") not in ("auto", shard):
            continue
        if ep % cp and ep > 1:
            continue
        if ep > 1 and ((shard * cp) % ep or facts.num_experts % ep):
            continue
        if cp > 1 and facts.heads % cp:
            continue
        yield replicate, shard, cp, ep


def trainer_layouts(
    spec: RunSpec, facts: ModelFacts, nodes: tuple[int, ...], ranks_per_node: int, device: str
) -> Iterator[TrainerLayout]:
    """Every mesh of these nodes, with and without optimizer offload and recompute, cheapest options first."""
    asked = spec.trainer.optimizer.offload
    offloads: tuple[Literal["none", "cpu"], ...] = ("none", "cpu") if asked == "auto" else (asked,)
    recompute = spec.trainer.activation_checkpoint
    checkpoints: tuple[Literal["none", "selective", "full"], ...]
    checkpoints = (("none",) if device == "cpu" else ("full",)) if recompute == "auto" else (recompute,)
    for replicate, shard, cp, ep in meshes(spec, facts, len(nodes) * ranks_per_node):
        for offload, checkpoint in itertools.product(("none",) if device == "cpu" else offloads, checkpoints):
            yield TrainerLayout(
                nodes=nodes,
                ranks_per_node=ranks_per_node,
                dp_replicate=replicate,
                dp_shard=shard,
                cp=cp,
                ep=ep,
                offload=offload,
                activation_checkpoint=checkpoint,
                micro_batch_tokens=math.ceil(spec.sequence.seq_len / cp),
            )
