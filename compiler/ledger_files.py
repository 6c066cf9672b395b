"""Bytes that a run leaves on the shared filesystem. Nothing of a bundle is written to a node's own disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger_nodes import PUBLISHED, batch_row, checkpoint_bytes, entry, rollout_tokens
from prlc.schema.plan import Ledger
from prlc.schema.trainer import TrainerConfig

if TYPE_CHECKING:
    from prlc.catalog import Cluster, ModelFacts
    from prlc.compiler.layout import Layout
    from prlc.schema.run import RunSpec

KEPT_POLICIES: int = TrainerConfig.keep_policies  # besides those with a checkpoint


def file_ledger(spec: RunSpec, facts: ModelFacts, cluster: Cluster, layout: Layout) -> Ledger:
    """Checkpoints, published policies and batches at the end of the run; capacity 0 where the cluster states none."""
    steps, width = spec.algorithm.max_steps, PUBLISHED[spec.inference.precision]
    keep = spec.trainer.keep_checkpoints or max(1, steps // spec.trainer.checkpoint_every)
    policies = KEPT_POLICIES + keep
    row = batch_row(facts, layout.router_replay)
    tokens = steps * spec.algorithm.batch_size * rollout_tokens(spec)
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
        entry("batches", tokens * row, f"{steps} steps, all kept: {tokens} tokens x {row} B"),
    )
    return Ledger(role="run", resource="filesystem", capacity=int(cluster.filesystem or 0), entries=entries)
