"""Samples become a batch folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.orchestrator.rollout import Sample, row_bytes
from prlc.runtime.transport.batches import Batch, write_batch
from prlc.schema.orchestrator import OrchestratorConfig


def as_batch(step: int, samples: list[Sample], config: OrchestratorConfig) -> Batch:
    """The arrays of a batch; a sample's advantage goes to each token that a policy wrote."""
    masks = [np.array(sample.loss_mask, np.uint8) for sample in samples]
    advantages = [mask * np.float32(sample.advantage) for mask, sample in zip(masks, samples, strict=True)]
    batch = Batch(
        tokens=np.concatenate([np.array(sample.tokens, np.int32) for sample in samples]),
        loss_mask=np.concatenate(masks),
        logprobs=np.concatenate([np.array(sample.logprobs, np.float32) for sample in samples]),
        advantages=np.concatenate(advantages),
        versions=np.concatenate([np.array(sample.versions, np.int32) for sample in samples]),
        sample_offsets=np.cumsum([0, *(len(sample.tokens) for sample in samples)], dtype=np.int64),
        rewards=np.array([sample.reward for sample in samples], np.float32),
        meta={
            "step": step,
            "temperature": config.sampling.temperature,
            "rollouts": [sample.rollout for sample in samples],
            "truncated": sum(sample.truncated for sample in samples),
        },
    )
    if config.routed_experts:
        # Each sample's rows, then a zero row for its last token.
        content = b"".join(part for sample in samples for part in (sample.routed, bytes(row_bytes(config))))
        dtype: np.dtype[Any] = np.dtype("u1" if config.num_experts <= 256 else "u2")
        batch.routed_experts = np.frombuffer(content, dtype).reshape(-1, config.moe_layers, config.top_k)
        batch.routed_valid = np.ones(len(batch.tokens), np.uint8)
        batch.routed_valid[batch.sample_offsets[1:] - 1] = 0
    return batch


def ship(paths: RunPaths, step: int, samples: list[Sample], config: OrchestratorConfig) -> None:
    """Write batch `step`. Raises BatchError, FileExistsError, OSError."""
    write_batch(paths.batch(step), as_batch(step, samples, config))
