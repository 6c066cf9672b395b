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

Mesh = tuple[int, int, int, int]  # dp_replicate, dp_shard, cp, ep
Option = tuple[Literal["none", "cpu"], Literal["none", "selective", "full"]]  # optimizer offload, recompute


def pinned(value: int | str, options: tuple[int, ...]) -> tuple[int, ...]:
    """The options, or the one value that the spec holds."""
    return options if value == "auto" else (int(value),)


def divisors(count: int) -> tuple[int, ...]:
    """Divisors of a count, ascending."""
    return tuple(n for n in range(1, count + 1) if count % n == 0)


def meshes(spec: RunSpec, facts: ModelFacts, nodes: int, ranks: int) -> Iterator[Mesh]:
    """(dp_replicate, dp_shard, cp, ep) of `nodes` x `ranks`: dp_replicate x dp_shard x cp = world, ep % cp == 0,
    (dp_shard x cp) % ep == 0, num_experts % ep == 0, seq_len % (2 x cp) == 0 (both halves of a rank's share), heads
    and KV heads shared evenly by cp.

    A replica of HSDP is whole nodes, or a whole part of the one node; dp ranks are at most the rollouts of a batch,
    for a rank without a sample would only wait. Degrees that the spec holds are taken as they are.

    Source: torchtitan 0.3.0 ParallelDims; the head-tail balancer of context parallelism.
    """
    asked, world = spec.trainer.parallel, nodes * ranks

    def hold(name: str) -> int | str:
        return "auto" if asked == "auto" else getattr(asked, name)

    replicas = pinned(hold("dp_replicate"), divisors(nodes if nodes > 1 else ranks))
    cps = pinned(hold("cp"), CP_DEGREES)
    eps = pinned(hold("ep"), EP_DEGREES if facts.num_experts else (1,))
    for replicate, cp in itertools.product(replicas, cps):
        if world % (replicate * cp) or not _cp_is_legal(spec, facts, cp):
            continue
        shard = world // (replicate * cp)
        if hold("dp_shard") not in ("auto", shard):
            continue
        if replicate * shard > spec.algorithm.batch_size:
            continue
        for ep in eps:
            if ep > 1 and (ep % cp or (shard * cp) % ep or not facts.num_experts or facts.num_experts % ep):
                continue
            yield replicate, shard, cp, ep


def _cp_is_legal(spec: RunSpec, facts: ModelFacts, cp: int) -> bool:
    if cp == 1:
        return True
    kv = facts.kv_heads % cp == 0 or cp % facts.kv_heads == 0
    groups = not facts.linear_layers or facts.mamba_groups % cp == 0
    return spec.sequence.seq_len % (2 * cp) == 0 and facts.heads % cp == 0 and kv and groups


def options(spec: RunSpec, device: str) -> tuple[Option, ...]:
    """(offload, recompute) that may be chosen, cheapest in time first: each later one saves memory or is no better."""
    asked, recompute = spec.trainer.optimizer.offload, spec.trainer.activation_checkpoint
    offloads: tuple[Literal["none", "cpu"], ...]
    checkpoints: tuple[Literal["none", "selective", "full"], ...]
    offloads = (("none", "cpu") if asked == "auto" else (asked,)) if device != "cpu" else ("none",)
    if spec.trainer.optimizer.name == "muon":  # its products belong on the GPU
        offloads = ("none",)
    every: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
    checkpoints = (("none",) if device == "cpu" else every) if recompute == "auto" else (recompute,)
    return tuple(itertools.product(offloads, checkpoints))


def layout(spec: RunSpec, nodes: tuple[int, ...], ranks: int, mesh: Mesh, option: Option) -> TrainerLayout:
    """The mesh on its nodes; a micro-batch holds one longest sample."""
    replicate, shard, cp, ep = mesh
    return TrainerLayout(
        nodes=nodes,
        ranks_per_node=ranks,
        dp_replicate=replicate,
        dp_shard=shard,
        cp=cp,
        ep=ep,
        offload=option[0],
        activation_checkpoint=option[1],
        micro_batch_tokens=math.ceil(spec.sequence.seq_len / cp),
        optimizer=spec.trainer.optimizer.name,
    )
