"""The loop around trainer and engines: what a rollout is, how many are in flight, their lag and their loss.

Sources: Little's law in version units; the drop rate of lognormal durations agrees with a discrete-event
simulation within 1 point (12.0 % against 11.6 % at N/B = 4, K = 8, s = 1), the wasted work with its 29 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.schema.run import RunSpec

Z95 = 1.6449
LAG_OF_QUEUE = 0.8  # versions: the step being trained and the queue before it
CALM_BATCHES = 2.0  # what `auto` generates at once, in batches, however short the bound's tail
MAX_BATCHES = 4.0  # and at most, where the share dropped stays below DROP_LIMIT
DROP_LIMIT = 0.10


@dataclass(frozen=True, kw_only=True)
class Work:
    """One mean rollout; tokens and seconds."""

    turns: float
    prompt: float  # tokens of the first prompt
    new: float  # tokens of each later turn that the model did not write
    output: float  # tokens of a turn that it writes
    length: float  # tokens of the whole rollout
    squares: float  # mean of length^2 over mean of length: the sequence that a token finds itself in
    tool: float  # seconds between two turns
    tool_sigma: float  # of its logarithm
    turn_sigma: float  # of the logarithm of a turn's new tokens
    sigma: float  # of the logarithm of a rollout's duration

    @property
    def context(self) -> float:
        """Mean tokens that are cached while a turn is decoded: long rollouts have more turns, so they weigh more."""
        return (self.prompt + self.squares) / 2

    @property
    def prefix(self) -> float:
        """Mean cached tokens before a turn's new ones."""
        return max(0.0, self.context - self.new - self.output / 2)

    @property
    def prefill(self) -> float:
        """New tokens of a mean turn."""
        return (self.prompt + self.new * (self.turns - 1)) / self.turns


def work(spec: RunSpec) -> Work:
    """The mean rollout of a spec. Lengths are lognormal as their turns are, and cut at seq_len."""
    load = spec.workload
    new, output = max(load.new_tokens_per_turn.mean, 0.0), max(load.output_tokens_per_turn.mean, 1.0)
    limit = float(spec.sequence.seq_len)
    prompt = min(load.prompt_tokens.mean if load.prompt_tokens else new, max(1.0, limit - output))
    first, each = prompt + output, new + output
    most = 1.0 + max(0.0, limit - first) / each
    if load.max_turns != "auto":
        most = min(most, float(load.max_turns))
    sigma = sigma_of(load.turns.mean, load.turns.p95)
    asked = max(1.0, load.turns.mean)
    turns = max(1.0, capped_moment(asked, sigma, most, 1))
    second = max(turns**2, capped_moment(asked, sigma, most, 2))
    # length = first + (turns - 1) each
    start = first - each
    length = min(limit, start + each * turns)
    squares = (start**2 + 2 * start * each * turns + each**2 * second) / max(1.0, start + each * turns)
    return Work(
        turns=turns,
        prompt=prompt,
        new=new,
        output=output,
        length=length,
        squares=min(limit, max(length, squares)),
        tool=load.tool_time.mean,
        tool_sigma=sigma_of(load.tool_time.mean, load.tool_time.p95),
        turn_sigma=sigma_of(load.new_tokens_per_turn.mean, load.new_tokens_per_turn.p95),
        sigma=sigma,
    )


def normal_below(z: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def capped_moment(mean: float, sigma: float, cap: float, power: int) -> float:
    """E[min(X, cap)^power] of a lognormal X.

    >>> round(capped_moment(4, 1.0, 8, 1), 3)
    3.238
    """
    if sigma == 0:
        return min(mean, cap) ** power
    mu = math.log(mean) - sigma**2 / 2
    at = (math.log(cap) - mu) / sigma
    whole = math.exp(power * mu + power**2 * sigma**2 / 2)
    return whole * normal_below(at - power * sigma) + cap**power * (1 - normal_below(at))


def sigma_of(mean: float, p95: float | None) -> float:
    """Sigma of the lognormal with this mean and 95th percentile; a tail too heavy for one gives the largest, 1.64."""
    if p95 is None or p95 <= mean or mean <= 0:
        return 0.0
    square = Z95**2 - 2 * math.log(p95 / mean)
    return Z95 - math.sqrt(square) if square > 0 else Z95


def inflight_rollouts(spec: RunSpec) -> int:
    """Rollouts generated at once: what the spec says.

    auto: two batches, more (to four) while at most a tenth would be dropped, fewer where the lag bound is tight.
    """
    algorithm = spec.algorithm
    asked = algorithm.max_inflight_groups
    if asked != "auto":
        return int(asked) * algorithm.group_size
    groups, bound = algorithm.batch_size // algorithm.group_size, algorithm.max_off_policy_steps
    within = max(1.0, bound - LAG_OF_QUEUE)
    count = max(1, math.floor(groups * min(CALM_BATCHES, within)))
    sigma = sigma_of(spec.workload.turns.mean, spec.workload.turns.p95)
    while count + 1 <= groups * min(MAX_BATCHES, within) and drop_rate(count + 1, groups, bound, sigma) <= DROP_LIMIT:
        count += 1
    return count * algorithm.group_size


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
    return 1 - normal_below((room + sigma**2 / 2) / sigma)


@dataclass(frozen=True)
class Lag:
    """Versions between what a trained rollout began with and what it trains."""

    mean: float
    p95: float
    wasted: float  # share of the work that goes into rollouts dropped at the bound


def lag(in_flight: float, batch: float, bound: int, sigma: float) -> Lag:
    """Lag of trained rollouts: lognormal durations with mean N / B, those above the bound dropped, plus the queue.

    >>> found = lag(4, 1, 8, 1.0)
    >>> round(found.mean, 2), round(found.p95, 1), round(found.wasted, 2)
    (3.41, 7.3, 0.29)
    """
    if bound == 0 or in_flight <= 0:
        return Lag(0.0, 0.0, drop_rate(in_flight, batch, bound, sigma))
    mean, top = in_flight / batch, float(bound)
    if sigma == 0:
        own = min(top, mean + LAG_OF_QUEUE)
        return Lag(own, own, drop_rate(in_flight, batch, bound, sigma))
    mu = math.log(mean) - sigma**2 / 2
    at = (math.log(top) - mu) / sigma
    kept = normal_below(at)
    below = mean * normal_below(at - sigma)
    tail = top * (1 - kept)
    p95 = math.exp(mu + sigma * _normal_quantile(0.95 * kept))
    return Lag(min(top, below / kept + LAG_OF_QUEUE), min(top, p95 + LAG_OF_QUEUE), tail / (below + tail))


def _normal_quantile(share: float) -> float:
    low, high = -9.0, 9.0
    for _ in range(50):
        middle = (low + high) / 2
        if normal_below(middle) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def mean_lag(in_flight: float, batch: float, bound: int) -> float:
    """Mean lag in versions where durations have no tail: N / B + 0.8, never above the bound."""
    return min(float(bound), in_flight / batch + LAG_OF_QUEUE)
