"""Advantages of a group of rollouts of one task."""

from __future__ import annotations

import math
from typing import Literal


def advantages(rewards: list[float], kind: Literal["grpo", "mean"]) -> list[float]:
    """grpo: (r - mean) / std with the population's std, 0 where all are equal; mean: r - mean."""
    mean = sum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if kind == "mean":
        return centred
    deviation = math.sqrt(sum(value * value for value in centred) / len(centred))
    return [value / deviation if deviation > 1e-8 else 0.0 for value in centred]
