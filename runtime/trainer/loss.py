"""Policy losses, as pure functions of one micro-batch.

In all of them ratio = exp(trainer - engine), the probability of a token under the weights being trained over that
under the weights that wrote it. A batch gets one optimizer step, so the "old" policy of the papers is the policy
being trained itself, and the ratio speaks of staleness and of the engine's arithmetic together.

Each answers per-token terms and which tokens get a gradient; `policy_loss` puts the optional parts on top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from prlc.schema.trainer import Loss

LIMIT = 30.0  # of a log ratio; e^30 is finite in float32


@dataclass(frozen=True)
class Tokens:
    """One micro-batch as a loss sees it; all tensors [rows, width].

    trainer: log probabilities under the weights being trained, with gradient; engine: under the weights that wrote
    the token. mask: trained tokens; fresh: those written by the very weights being trained. sequences: number of a
    token's sample, from 0, unique in the micro-batch; a sample is never split over micro-batches.
    """

    trainer: torch.Tensor
    engine: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    fresh: torch.Tensor
    sequences: torch.Tensor

    @property
    def difference(self) -> torch.Tensor:
        """Log ratio, 0 where not trained."""
        return torch.where(self.mask, self.trainer - self.engine, torch.zeros_like(self.trainer)).clamp(-LIMIT, LIMIT)


@dataclass(frozen=True)
class LossSums:
    """Sum of a micro-batch's loss (carries the gradient) and how many trained tokens its bounds left out.

    The caller divides the loss by the batch's trained tokens, or where `by_sample`, by its samples that have any.
    """

    loss: torch.Tensor
    masked: torch.Tensor


Terms = tuple[torch.Tensor, torch.Tensor]


def masked_ratio(tokens: Tokens, low: float, high: float) -> Terms:
    """-ratio A inside [low, high], nothing outside; the mean is over tokens.

    Source: IcePop, arXiv 2510.18855: masks min(r A, clip(r) A) by k = pi_train / pi_infer in [alpha, beta] with
    weight k; at one step a batch r = 1 and its gradient is k A grad log pi, which is this one's.
    """
    ratio = tokens.difference.exp()
    inside = (ratio >= low) & (ratio <= high)
    return torch.where(inside, -ratio * tokens.advantages, torch.zeros_like(ratio)), inside


def clipped_ratio(tokens: Tokens, low: float, high: float) -> Terms:
    """-min(ratio A, clip(ratio, low, high) A); the mean is over tokens.

    Source: PPO, arXiv 1707.06347, eq. 7, low = 1 - eps, high = 1 + eps. DAPO, arXiv 2503.14476, eq. 8: the two eps
    differ (clip-higher) and the mean is over the tokens of the batch, not over samples.
    """
    ratio = tokens.difference.exp()
    plain, clipped = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    return -torch.minimum(plain, clipped), plain <= clipped


def clipped_sequence_ratio(tokens: Tokens, low: float, high: float) -> Terms:
    """-min(s A, clip(s, low, high) A), s = exp(mean over the sample's trained tokens of the log ratio).

    The mean is over the tokens of a sample, then over samples. Source: GSPO, arXiv 2507.18071, eq. 5-7, in the form
    of its section 4.3 (GSPO-token): s keeps its value and each token carries its own gradient, so that advantages
    may differ by token; where they do not, the gradient is the same.
    """
    difference = tokens.difference
    level = _sequence_mean(difference, tokens).detach()
    ratio = (level + difference - difference.detach()).exp()
    plain, clipped = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    return -torch.minimum(plain, clipped), plain <= clipped


def weighted_log_probability(tokens: Tokens, low: float, high: float) -> Terms:
    """-sg(clip(ratio, low, high)) A log pi; the mean is over tokens, and every token keeps a gradient.

    Source: CISPO, MiniMax-M1, arXiv 2506.13585, eq. 4-5.
    """
    weight = tokens.difference.exp().clamp(low, high).detach()
    return -weight * tokens.advantages * tokens.trainer, torch.ones_like(tokens.mask)


def truncated_importance(tokens: Tokens, cap: float) -> torch.Tensor:
    """-sg(min(ratio, cap)) A pi / sg(pi): the term of a stale token, no clip or mask besides.

    Source: the decoupled objective, arXiv 2110.00641, as AReaL uses it, arXiv 2505.24298: the correction
    from behaviour to proximal policy stands apart from the clip around the proximal policy, and at one step a batch
    the latter is the policy being trained, ratio 1. The weight is truncated as in IMPALA, arXiv 1802.01561.
    """
    difference = tokens.difference
    weight = difference.exp().clamp(max=cap).detach()
    return -weight * tokens.advantages * (difference - difference.detach()).exp()


def behaviour_kl(tokens: Tokens) -> torch.Tensor:
    """k3 = ratio - 1 - log ratio: unbiased for KL(engine || trainer), since the engine drew the tokens.

    Source: Schulman, "Approximating KL divergence", 2020 (joschu.net/blog/kl-approx.html); used as a penalty, with
    a reference policy, in GRPO, arXiv 2402.03300, eq. 4.
    """
    difference = tokens.difference
    return torch.expm1(difference) - difference


LOSSES: dict[str, Callable[[Tokens, float, float], Terms]] = {
    "masked_is": masked_ratio,
    "icepop": masked_ratio,
    "ppo_clip": clipped_ratio,
    "dapo": clipped_ratio,
    "gspo": clipped_sequence_ratio,
    "cispo": weighted_log_probability,
}


def by_sample(name: str) -> bool:
    """True where the loss is a mean over samples of means over their tokens; else it is a mean over tokens."""
    return LOSSES[name] is clipped_sequence_ratio


def policy_loss(settings: Loss, tokens: Tokens) -> LossSums:
    """Sum of a micro-batch's terms: the loss, stale tokens with their own weight, plus kl_weight x k3.

    Over tokens, or where `by_sample`, over samples of the mean over tokens. Raises ValueError on stale_cap with a
    loss by sample: its ratio is one of whole samples.
    """
    terms, kept = LOSSES[settings.name](tokens, settings.ratio_low, settings.ratio_high)
    if settings.stale_cap is not None:
        if by_sample(settings.name):
            raise ValueError(f"stale_cap weighs single tokens, {settings.name} whole samples")
        terms = torch.where(tokens.fresh, terms, truncated_importance(tokens, settings.stale_cap))
        kept = kept | ~tokens.fresh
    if settings.kl_weight:
        terms = terms + settings.kl_weight * behaviour_kl(tokens)
    masked = (tokens.mask & ~kept).sum()
    if by_sample(settings.name):
        terms = terms / _sequence_count(tokens)
    return LossSums(torch.where(tokens.mask, terms, torch.zeros_like(terms)).sum(), masked)


def _sequence_sum(values: torch.Tensor, tokens: Tokens) -> torch.Tensor:
    """At each token, the sum of `values` over the trained tokens of its sample."""
    ids = tokens.sequences.flatten()
    kept = torch.where(tokens.mask, values, torch.zeros_like(values)).flatten()
    sums = kept.new_zeros(int(ids.max()) + 1).index_add(0, ids, kept)
    return sums[ids].view(values.shape)


def _sequence_count(tokens: Tokens) -> torch.Tensor:
    """At each token, the trained tokens of its sample, at least 1."""
    return _sequence_sum(torch.ones_like(tokens.trainer), tokens).detach().clamp(min=1)


def _sequence_mean(values: torch.Tensor, tokens: Tokens) -> torch.Tensor:
    return _sequence_sum(values, tokens) / _sequence_count(tokens)


def k3(trainer: torch.Tensor, engine: torch.Tensor) -> torch.Tensor:
    """Estimator exp(d) - 1 - d of KL(engine || trainer) by token, d = trainer - engine, in float64."""
    d = (trainer.double() - engine.double()).clamp(-LIMIT, LIMIT)
    return torch.expm1(d) - d
