"""The loop around trainer and engines: what a rollout is, how many are in flight, their lag and their loss.

Sources: Little's law in version units; the drop rate of lognormal durations agrees with a discrete-event
simulation within 1 point (12.0 % against 11.6 % at N/B = 4, K = 8, s = 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.schema.run import RunSpec

Z95 = 1.6449
LAG_OF_QUEUE = 0.8  # versions: the step being trained and the queue before it
MAX_BATCHES_IN_FLIGHT = 2.0  # what `auto` generates at once, in batches


@dataclass(frozen=True, kw_only=True)
class Work:
    """One mean rollout; tokens and seconds."""

    turns: float
    prompt: float  # tokens of the first prompt
    new: float  # tokens of each later turn that the model did not write
    output: float  # tokens of a turn that it writes
    length: float  # tokens of the whole rollout
    tool: float  # seconds between two turns
    sigma: float  # of the logarithm of its duration

    @property
    def context(self) -> float:
        """Mean tokens that are cached while a turn is decoded."""
        return (self.prompt + self.length) / 2

    @property
    def prefix(self) -> float:
        """Mean cached tokens before a turn's new ones."""
        return max(0.0, self.context - self.new - self.output / 2)

    @property
    def prefill(self) -> float:
        """New tokens of a mean turn."""
        return (self.prompt + self.new * (self.turns - 1)) / self.turns


def work(spec: RunSpec) -> Work:
    """The mean rollout of a spec, cut at seq_len: fewer turns when they would not fit."""
    load = spec.workload
    new, output = max(load.new_tokens_per_turn.mean, 0.0), max(load.output_tokens_per_turn.mean, 1.0)
    limit = float(spec.sequence.seq_len)
    prompt = min(load.prompt_tokens.mean if load.prompt_tokens else new, max(1.0, limit - output))
    turns = max(1.0, load.turns.mean)
    if load.max_turns != "auto":
        turns = min(turns, float(load.max_turns))
    room = max(0.0, limit - prompt - output) / (new + output)
    turns = min(turns, 1.0 + room)
    length = min(limit, prompt + output + (turns - 1) * (new + output))
    return Work(
        turns=turns,
        prompt=prompt,
        new=new,
        output=output,
        length=length,
        tool=load.tool_time.mean,
        sigma=sigma_of(load.turns.mean, load.turns.p95),
    )


def sigma_of(mean: float, p95: float | None) -> float:
    """Sigma of the lognormal with this mean and 95th percentile; a tail too heavy for one gives the largest, 1.64."""
    if p95 is None or p95 <= mean or mean <= 0:
        return 0.0
    square = Z95**2 - 2 * math.log(p95 / mean)
    return Z95 - math.sqrt(square) if square > 0 else Z95


def inflight_rollouts(spec: RunSpec) -> int:
    """Rollouts generated at once: what the spec says; auto: up to two batches, fewer where the lag bound is tight."""
    algorithm = spec.algorithm
    asked = algorithm.max_inflight_groups
    if asked != "auto":
        return int(asked) * algorithm.group_size
    groups = algorithm.batch_size // algorithm.group_size
    batches = min(MAX_BATCHES_IN_FLIGHT, max(1.0, algorithm.max_off_policy_steps - LAG_OF_QUEUE))
    return max(1, math.floor(groups * batches)) * algorithm.group_size


def drop_rate(in_flight: float, batch: float, bound: int, sigma: float) -> float:
    """Share of rollouts older than `bound` versions when trained: Q((ln(K B / N) + s^2/2) / s).

    A bound of 0 drops what does not fit into the batch.

    >>> round(drop_rate(4, 1, 8, 1.0), 3)
    0.116
    """
    if in_flight <= 0:
        return 0.0
    if bound == 0:
        return max(0.0, 1 - batch / in_flight)
    room = math.log(bound * batch / in_flight)
    if sigma == 0:
        return 0.0 if room >= 0 else 1 - math.exp(room)
    return 0.5 * math.erfc((room + sigma**2 / 2) / sigma / math.sqrt(2))


def mean_lag(in_flight: float, batch: float, bound: int) -> float:
    """Mean lag in versions of what is trained: N / B + 0.8, never above the bound."""
    return min(float(bound), in_flight / batch + LAG_OF_QUEUE)
