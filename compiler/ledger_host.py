"""Host memory of each kind of node, and bytes on the shared filesystem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.replay import replay_bytes
from prlc.compiler.forecast_loop import work
from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import Cluster, ModelFacts
    from prlc.compiler.layout import EngineLayout, Layout
    from prlc.schema.run import RunSpec

SYSTEM = 16 * 2**30  # operating system and page cache that a node needs to breathe: an assumption
PROCESS = 4 * 2**30  # interpreter, torch and CUDA's host side of one GPU process: an assumption
OFFLOADED = 16  # bytes a parameter: FSDP's CPU offload keeps master, gradient and both Adam moments there, pinned
CHECKPOINT = 12  # bytes a parameter: master and both Adam moments
KEPT_POLICIES = 3  # besides those with a checkpoint: TrainerConfig.keep_policies
PUBLISHED = {"fp32": 4, "bf16": 2, "fp8": 2}
BATCH_ROW = 17  # bytes a token of batch.safetensors: token 4, mask 1, log-probability 4, advantage 4, version 4
PYTHON_ROW = 64  # bytes a token while it waits in Python lists: an assumption


def rollout_tokens(spec: RunSpec) -> int:
    """Tokens of a mean rollout, at most seq_len."""
    return min(spec.sequence.seq_len, int(work(spec).length) + 1)


def _entry(what: str, size: float, formula: str, phase: str = "always") -> LedgerEntry:
    return LedgerEntry(what=what, phase=phase, bytes=int(size), formula=formula)


def host_ledgers(spec: RunSpec, facts: ModelFacts, cluster: Cluster, layout: Layout) -> tuple[Ledger, ...]:
    """Trainer nodes, engine nodes, the orchestrator (host, the fullest node of each kind) and the filesystem.

    Processes of a CPU cluster have ledgers of their own (`trainer_ledger`, `engine_ledger`).
    """
    memory = int(cluster.node.memory)
    small = memory < 4 * SYSTEM
    system = _entry("system", memory // 8 if small else SYSTEM, "1/8 of the node" if small else "16 GiB")
    found = [
        Ledger(role="trainer node", resource="host", capacity=memory, entries=(system, *_trainer(spec, facts, layout))),
        Ledger(role="orchestrator", resource="host", capacity=memory, entries=(system, _rollouts(spec, facts, layout))),
    ]
    fullest = [(system, *_engine(facts, e, layout)) for e in layout.engines]
    entries = max(fullest, key=lambda parts: sum(part.bytes for part in parts))
    found.append(Ledger(role="engine node", resource="host", capacity=memory, entries=entries))
    files = _files(spec, facts, layout)
    # no cluster file states the size of its shared filesystem: the need is shown, the capacity is the need
    need = sum(entry.bytes for entry in files)
    found.append(Ledger(role="run", resource="filesystem", capacity=need, entries=files))
    return tuple(found)


def _on_cpu(layout: Layout) -> bool:
    return all(engine.gpu_memory_utilization == 0 for engine in layout.engines)


def _trainer(spec: RunSpec, facts: ModelFacts, layout: Layout) -> tuple[LedgerEntry, ...]:
    mesh, width = layout.trainer, PUBLISHED[spec.inference.precision]
    nodes = len(mesh.nodes)
    row = BATCH_ROW + (replay_bytes(facts).kept if layout.router_replay else 0)
    tokens = spec.algorithm.batch_size * rollout_tokens(spec)
    parts = [
        _entry("batch with replay rows", tokens * row, f"{tokens} tokens x {row} B, mapped by every node", "forward"),
        _entry(
            "policy being published",
            facts.total_params * width / nodes,
            f"{facts.total_params} params x {width} B / {nodes} nodes, in the page cache",
            "sync",
        ),
    ]
    if mesh.offload == "cpu":
        size = facts.total_params * OFFLOADED * mesh.dp_replicate
        text = f"{facts.total_params} params x {OFFLOADED} B x dp_replicate {mesh.dp_replicate} / {nodes} nodes"
        parts.append(_entry("pinned optimizer state", size / nodes, text))
    if not _on_cpu(layout):
        text = f"{mesh.ranks_per_node} ranks x 4 GiB"
        parts.append(_entry("processes", mesh.ranks_per_node * PROCESS, text))
    return tuple(parts)


def _engine(facts: ModelFacts, engine: EngineLayout, layout: Layout) -> tuple[LedgerEntry, ...]:
    servers = -(-engine.servers // len(engine.nodes))  # of the fullest node
    parts = []
    if layout.router_replay:
        row = replay_bytes(facts).engine
        parts.append(
            _entry(
                "router-replay rows",
                servers * engine.kv_tokens * row,
                f"{servers} servers x {engine.kv_tokens} KV tokens x {row} B",
                "decode",
            )
        )
    if not _on_cpu(layout):
        text = f"{servers} servers x tp {engine.tp} x 4 GiB"
        parts.append(_entry("processes", servers * engine.tp * PROCESS, text))
    store = layout.store
    if store is not None and set(engine.nodes) & set(store.nodes):
        parts.append(_entry("store segment", store.segment_bytes, f"{store.segment_bytes} B lent to the KV store"))
    return tuple(parts)


def _rollouts(spec: RunSpec, facts: ModelFacts, layout: Layout) -> LedgerEntry:
    """Rollouts in flight, queued and being shipped; their replay rows have the engine's layout."""
    row = PYTHON_ROW + (replay_bytes(facts).engine if layout.router_replay else 0)
    held = layout.max_inflight_groups * spec.algorithm.group_size + 2 * spec.algorithm.batch_size
    tokens = rollout_tokens(spec)
    return _entry("rollouts held", held * tokens * row, f"{held} rollouts x {tokens} tokens x {row} B")


def _files(spec: RunSpec, facts: ModelFacts, layout: Layout) -> tuple[LedgerEntry, ...]:
    steps, width = spec.algorithm.max_steps, PUBLISHED[spec.inference.precision]
    keep = spec.trainer.keep_checkpoints or max(1, steps // spec.trainer.checkpoint_every)
    policies = KEPT_POLICIES + keep
    row = BATCH_ROW + (replay_bytes(facts).kept if layout.router_replay else 0)
    tokens = steps * spec.algorithm.batch_size * rollout_tokens(spec)
    params = facts.total_params
    return (
        _entry(
            "checkpoints",
            params * CHECKPOINT * (keep + 1),
            f"{params} params x {CHECKPOINT} B x ({keep} kept + 1 being written)",
        ),
        _entry(
            "published policies",
            params * width * (policies + 1),
            f"{params} params x {width} B x ({KEPT_POLICIES} kept + {keep} with a checkpoint + 1 being written)",
        ),
        _entry("batches", tokens * row, f"{steps} steps, all kept: {tokens} tokens x {row} B"),
    )
