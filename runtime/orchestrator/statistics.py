"""What a batch was like, as numbers for metrics."""

from __future__ import annotations

from prlc.runtime.orchestrator.rollout import Sample


def statistics(batch: list[Sample], step: int) -> dict[str, float]:
    """Means over the rollouts of batch `step` (from 1) unless the name says otherwise; lengths in tokens.

    Lag in versions: (step - 1) - the oldest version of the rollout. Of advantages the mean size, as their mean is 0.
    """
    count = len(batch)
    lengths = [len(sample.tokens) for sample in batch]
    written = [sum(sample.loss_mask) for sample in batch]
    lags = [(step - 1) - sample.oldest for sample in batch]
    return {
        "batch_reward": sum(sample.reward for sample in batch) / count,
        "advantage_size": sum(abs(sample.advantage) for sample in batch) / count,
        "lag_mean": sum(lags) / count,
        "lag_max": max(lags),
        "rollouts": count,
        "turns": sum(sample.turns for sample in batch) / count,
        "length": sum(lengths) / count,
        "length_max": max(lengths),
        "generated_length": sum(written) / count,
        "generated_length_max": max(written),
        "truncated": sum(sample.truncated for sample in batch) / count,
    }
