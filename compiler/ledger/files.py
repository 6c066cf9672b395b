"""Bytes that a run leaves on the shared filesystem. Nothing of a bundle is written to a node's own disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger.nodes import PUBLISHED, batch_row, checkpoint_bytes, entry, rollout_tokens
from prlc.schema.orchestrator import OrchestratorConfig
from prlc.schema.plan import Ledger
from prlc.schema.trainer import TrainerConfig

if TYPE_CHECKING:
    from prlc.catalog import Cluster, ModelFacts
    from prlc.compiler.layout import Layout
    from prlc.schema.run import RunSpec

KEPT_POLICIES: int = TrainerConfig.keep_policies  # besides those with a checkpoint
AHEAD: int = OrchestratorConfig.lead_batches + 1  # batches shipped past the newest version


def kept_batches(steps: int, every: int, keep: int) -> tuple[int, str]:
    """(the most batches that are there at once, the formula): all after the oldest kept checkpoint; `keep` 0 keeps all.

    They are most just before the first checkpoint is complete, or before a later one that lets the oldest go.

    >>> kept_batches(1000, 20, 2)
    (42, '2 checkpoints x 20 steps + 2 ahead')
    >>> kept_batches(1000, 20, 0)
    (980, '1000 - 20 steps, all after the first checkpoint')
    >>> kept_batches(20, 20, 2)
    (20, 'all steps')
    """
    first, later = min(steps, every + AHEAD), steps - every
    if keep and keep * every + AHEAD < later:
        return keep * every + AHEAD, f"{keep} checkpoints x {every} steps + {AHEAD} ahead"
    if later > first:
        return later, f"{steps} - {every} steps, all after the first checkpoint"
    return first, "all steps" if first == steps else f"{every} steps to the first checkpoint + {AHEAD} ahead"


def file_ledger(spec: RunSpec, facts: ModelFacts, cluster: Cluster, layout: Layout) -> Ledger:
    """Checkpoints, published policies and batches when they are most; capacity 0 where the cluster states none."""
    steps, width = spec.algorithm.max_steps, PUBLISHED[spec.inference.precision]
    keep = spec.trainer.keep_checkpoints or max(1, steps // spec.trainer.checkpoint_every)
    policies = KEPT_POLICIES + keep
    row = batch_row(facts, layout.router_replay)
    count, why = kept_batches(steps, spec.trainer.checkpoint_every, spec.trainer.keep_checkpoints)
    tokens = count * spec.algorithm.batch_size * rollout_tokens(spec)
    params, one = facts.total_params, checkpoint_bytes(facts, layout)
    # several ranks write parts first and join them: the version being written is there twice
    writing = 2 if layout.trainer.world > 1 else 1
    entries = (
        entry(
            "checkpoints",
            one * (keep + 1),
            f"{one} B of masters and optimizer state x ({keep} kept + 1 being written)",
        ),
        entry(
            "published policies",
            params * width * (policies + writing),
            f"{params} params x {width} B x ({KEPT_POLICIES} kept + {keep} with a checkpoint + {writing} in writing)",
        ),
        entry("batches", tokens * row, f"{count} of {steps} batches ({why}): {tokens} tokens x {row} B"),
    )
    return Ledger(role="run", resource="filesystem", capacity=int(cluster.filesystem or 0), entries=entries)
