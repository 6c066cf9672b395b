"""Layouts that the ledger tests start from."""

from __future__ import annotations

import dataclasses
from typing import Any

from prlc.compiler.layout import EngineLayout, TrainerLayout
from prlc.schema.plan import Ledger

GIB = 2**30


def mesh(**changed: Any) -> TrainerLayout:
    """One node of eight ranks, full recompute."""
    base = TrainerLayout(
        nodes=(0,),
        ranks_per_node=8,
        dp_replicate=1,
        dp_shard=8,
        cp=1,
        ep=1,
        offload="none",
        activation_checkpoint="full",
        micro_batch_tokens=16384,
    )
    return dataclasses.replace(base, **changed)


def glm_mesh(nodes: int, **changed: Any) -> TrainerLayout:
    """131,072 tokens over cp 4, experts over a node, sharded state in host memory."""
    wide = mesh(nodes=tuple(range(nodes)), dp_shard=2 * nodes, cp=4, ep=8, offload="cpu", micro_batch_tokens=32768)
    return dataclasses.replace(wide, **changed)


def engine(**changed: Any) -> EngineLayout:
    """One replica of eight data-parallel servers that share experts."""
    base = EngineLayout(
        role="engine",
        nodes=(0,),
        replicas=1,
        tp=1,
        dp=8,
        ep=8,
        all2all="deepep_high_throughput",
        max_model_len=16384,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        kv_bytes=0,
        kv_tokens=0,
    )
    return dataclasses.replace(base, **changed)


def part(ledger: Ledger, what: str) -> int:
    """Bytes of one entry. Raises KeyError."""
    return {entry.what: entry.bytes for entry in ledger.entries}[what]
