"""Host memory that each role needs on one of its nodes, in bytes.

Phases: `step` (a batch is trained), `publish` and `checkpoint` (files are being written). What has no phase stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.replay import replay_bytes
from prlc.compiler.forecast.loop import work
from prlc.compiler.ledger.units import GRADIENT, MASTER, MOMENTS, moment_bytes
from prlc.schema.plan import LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout, Layout
    from prlc.schema.run import RunSpec

GIB = 2**30
PROCESS = 4 * GIB  # interpreter, torch and CUDA's host side of one GPU process: an assumption
PUBLISHED = {"fp32": 4, "bf16": 2, "fp8": 2}
BATCH_ROW = 17  # bytes a token of batch.safetensors: token 4, mask 1, log-probability 4, advantage 4, version 4
PACKED_ROW = 49  # the same laid out for the model: 5 x int64, a mask, 2 x float32 (prlc.runtime.trainer.packing.Rows)
PACKED_EXPERT = 8  # an expert's number there: int64
REPLAY_MASK = 1  # routed_valid, beside the recorded experts
PYTHON_ROW = 64  # bytes a token while it waits in Python lists: an assumption
DIRTY_SHARE = 0.2  # of free memory: Linux's vm.dirty_ratio, above which writers wait for the disk
STORE_BUFFER = 4 * GIB  # Mooncake's local_buffer_size of one GPU process


def entry(what: str, size: float, formula: str, phase: str = "always") -> LedgerEntry:
    """One part, bytes rounded down."""
    return LedgerEntry(what=what, phase=phase, bytes=int(size), formula=formula)


def rollout_tokens(spec: RunSpec) -> int:
    """Tokens of a mean rollout, at most seq_len."""
    return min(spec.sequence.seq_len, int(work(spec).length) + 1)


def batch_row(facts: ModelFacts, replay: bool) -> int:
    """Bytes of one token in a batch, with its replay rows."""
    return BATCH_ROW + (replay_bytes(facts).kept + REPLAY_MASK if replay else 0)


def pinned(size: int) -> int:
    """What torch's pinned-memory allocator takes for `size` bytes: the next power of two.

    Source: c10 CachingHostAllocator.

    >>> pinned(5 * 2**20) // 2**20
    8
    """
    return 1 << max(0, size - 1).bit_length()


def checkpoint_bytes(facts: ModelFacts, layout: Layout) -> int:
    """One checkpoint: masters and optimizer state."""
    return MASTER * facts.total_params + moment_bytes(facts, layout.trainer.optimizer)


def trainer_parts(spec: RunSpec, facts: ModelFacts, layout: Layout, gpus: bool) -> list[LedgerEntry]:
    """One trainer node. Every rank reads the whole batch but for the experts, of which it maps its own samples'."""
    mesh = layout.trainer
    ranks = mesh.ranks_per_node
    tokens, shares = spec.algorithm.batch_size * rollout_tokens(spec), mesh.dp_replicate * mesh.dp_shard
    row = BATCH_ROW + (REPLAY_MASK if layout.router_replay else 0)
    packed = PACKED_ROW + (PACKED_EXPERT * facts.moe_layers * facts.top_k if layout.router_replay else 0)
    own = f"{ranks} ranks x {tokens} tokens x {packed} B / {shares} data-parallel ranks"
    parts = [
        entry("batches", ranks * tokens * row, f"{ranks} ranks x {tokens} tokens x {row} B, the whole in each", "step"),
        entry("micro-batches with replay rows", ranks * tokens * packed // shares, own, "step"),
    ]
    if mesh.offload == "cpu":
        parts += _offloaded(facts, layout)
    if gpus:
        parts.append(entry("trainer processes", ranks * PROCESS, f"{ranks} ranks x 4 GiB"))
    return parts


def page_cache(spec: RunSpec, facts: ModelFacts, layout: Layout, free: int) -> list[LedgerEntry]:
    """Files of a trainer node that wait for the disk: at most a share of the `free` bytes, then writers wait."""
    nodes, limit = len(layout.trainer.nodes), int(DIRTY_SHARE * max(0, free))
    return [
        entry(
            what,
            min(size // nodes, limit),
            f"{size} B / {nodes} nodes, at most {DIRTY_SHARE:g} of {max(0, free)} B",
            phase,
        )
        for what, phase, size in (
            ("policy in the page cache", "publish", facts.total_params * PUBLISHED[spec.inference.precision]),
            ("checkpoint in the page cache", "checkpoint", checkpoint_bytes(facts, layout)),
        )
    ]


def _offloaded(facts: ModelFacts, layout: Layout) -> list[LedgerEntry]:
    """FSDP2's CPU offload: masters and gradients pinned, moments beside them, all of the node's ranks."""
    mesh = layout.trainer
    shards, ranks = mesh.dp_shard * mesh.cp, mesh.ranks_per_node
    share = f"{facts.total_params} params x {ranks} ranks / {shards} shards"
    params = facts.total_params * ranks // shards
    experts = facts.moe_layers * 3
    # the tensor that most parameters lie in: one projection of all experts of a layer, or of a dense layer
    typical = facts.params.get("routed_experts", 0) // experts if experts else facts.hidden * facts.intermediate
    shard = max(1, MASTER * typical // shards)
    rounding = pinned(shard) / shard
    return [
        entry(
            "pinned masters and gradients",
            params * (MASTER + GRADIENT) * rounding,
            f"{share} x {MASTER + GRADIENT} B x {rounding:.2f}: a shard of {shard} B takes a power of two",
        ),
        entry("optimizer moments", params * MOMENTS, f"{share} x {MOMENTS} B"),
    ]


def engine_parts(facts: ModelFacts, engine: EngineLayout, layout: Layout, gpus: bool) -> list[LedgerEntry]:
    """The fullest node of one engine role."""
    servers = -(-engine.servers // len(engine.nodes))
    parts = []
    if layout.router_replay:
        row = replay_bytes(facts).engine
        text = f"{servers} servers x {engine.kv_tokens} KV tokens x {row} B"
        parts.append(entry(f"{engine.role} router-replay rows", servers * engine.kv_tokens * row, text))
    workers = servers * engine.tp
    if gpus:
        text = f"{servers} servers x tp {engine.tp} x 4 GiB"
        parts.append(entry(f"{engine.role} processes", workers * PROCESS, text))
    store = layout.store
    if store is not None and gpus:
        parts.append(entry(f"{engine.role} store buffers", workers * STORE_BUFFER, f"{workers} processes x 4 GiB"))
    return parts


def store_parts(layout: Layout) -> list[LedgerEntry]:
    """The DRAM segment that a node lends to the KV store."""
    if layout.store is None:
        return []
    size = layout.store.segment_bytes
    return [entry("store segment", size, f"{size} B lent to the KV store")]


def orchestrator_parts(spec: RunSpec, facts: ModelFacts, layout: Layout) -> list[LedgerEntry]:
    """Rollouts in flight, queued and being shipped, replay rows in the engine's layout; the batch while it is built."""
    row = PYTHON_ROW + (replay_bytes(facts).engine if layout.router_replay else 0)
    held = layout.max_inflight_groups * spec.algorithm.group_size + 2 * spec.algorithm.batch_size
    tokens = rollout_tokens(spec)
    built, whole = batch_row(facts, layout.router_replay), spec.algorithm.batch_size * tokens
    return [
        entry("rollouts held", held * tokens * row, f"{held} rollouts x {tokens} tokens x {row} B"),
        entry("batch being built", 2 * whole * built, f"2 copies x {whole} tokens x {built} B: arrays and file"),
    ]
