"""Host memory of each kind of node, and bytes on the shared filesystem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.replay import replay_bytes
from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import Cluster, ModelFacts
    from prlc.compiler.layout import Layout
    from prlc.schema.run import RunSpec

SYSTEM = 16 * 2**30  # operating system and page cache that a node needs to breathe: an assumption
OFFLOADED = 8  # bytes a parameter: both Adam moments in fp32
KEPT_POLICIES = 3
PUBLISHED = {"fp32": 4, "bf16": 2, "fp8": 2}


def rollout_tokens(spec: RunSpec) -> int:
    """Tokens of a mean rollout, at most seq_len."""
    work = spec.workload
    mean = work.turns.mean * (work.new_tokens_per_turn.mean + work.output_tokens_per_turn.mean)
    return min(spec.sequence.seq_len, int(mean) + 1)


def host_ledgers(spec: RunSpec, facts: ModelFacts, cluster: Cluster, layout: Layout) -> tuple[Ledger, ...]:
    """Trainer nodes, engine nodes (where a store is), the orchestrator, and the filesystem."""
    mesh, memory = layout.trainer, cluster.node.memory
    small = memory < 4 * SYSTEM
    system = LedgerEntry(
        what="system",
        phase="always",
        bytes=memory // 8 if small else SYSTEM,
        formula="1/8 of the node" if small else "16 GiB",
    )
    payload = replay_bytes(facts).engine if layout.router_replay else 0
    batch = spec.algorithm.batch_size * rollout_tokens(spec)
    trainer = [
        system,
        LedgerEntry(
            what="batch with replay rows",
            phase="forward",
            bytes=batch * (16 + payload),
            formula=f"{batch} tokens x (16 + {payload}) B, mapped by every node",
        ),
    ]
    if mesh.offload == "cpu":
        trainer.append(
            LedgerEntry(
                what="pinned optimizer state",
                phase="always",
                bytes=facts.total_params * OFFLOADED // len(mesh.nodes),
                formula=f"{facts.total_params} params x {OFFLOADED} B / {len(mesh.nodes)} nodes",
            )
        )
    waiting = layout.max_inflight_groups * spec.algorithm.group_size + 2 * spec.algorithm.batch_size
    found = [
        Ledger(role="trainer node", resource="host", capacity=memory, entries=tuple(trainer)),
        Ledger(
            role="orchestrator",
            resource="host",
            capacity=memory,
            entries=(
                system,
                LedgerEntry(
                    what="rollouts held",
                    phase="always",
                    bytes=waiting * rollout_tokens(spec) * (64 + payload),
                    formula=f"{waiting} rollouts x {rollout_tokens(spec)} tokens x (64 + {payload}) B",
                ),
            ),
        ),
    ]
    if layout.store is not None:
        segment = LedgerEntry(
            what="store segment",
            phase="always",
            bytes=layout.store.segment_bytes,
            formula="half of the node's memory",
        )
        found.append(Ledger(role="engine node", resource="host", capacity=memory, entries=(system, segment)))
    keep = spec.trainer.keep_checkpoints or max(1, spec.algorithm.max_steps // spec.trainer.checkpoint_every)
    width = PUBLISHED[spec.inference.precision]
    files = (
        LedgerEntry(
            what="checkpoints",
            phase="always",
            bytes=facts.total_params * 12 * (keep + 1),
            formula=f"{facts.total_params} params x 12 B x ({keep} kept + 1 being written)",
        ),
        LedgerEntry(
            what="published policies",
            phase="always",
            bytes=facts.total_params * width * (KEPT_POLICIES + 1),
            formula=f"{facts.total_params} params x {width} B x ({KEPT_POLICIES} kept + 1 being written)",
        ),
    )
    # no cluster file states the size of its shared filesystem: the need is shown, the capacity is the need
    need = sum(entry.bytes for entry in files)
    found.append(Ledger(role="run", resource="filesystem", capacity=need, entries=files))
    return tuple(found)
