"""Per-token policy losses, as pure functions. Sums: the caller divides by the global token count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from prlc.schema.trainer import Loss


@dataclass
class LossSums:
    """Sum of the loss over trained tokens (carries the gradient) and how many got none."""

    loss: torch.Tensor
    masked: torch.Tensor


def policy_loss(
    settings: Loss, trainer: torch.Tensor, engine: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> LossSums:
    """Loss of tokens: log probabilities of trainer and engine, advantages, mask (bool, True = trained).

    masked_is: -advantage x ratio inside [mask_low, mask_high], nothing outside.
    ppo_clip: -min(ratio A, clip(ratio) A) with the clip [1 - clip_low, 1 + clip_high].
    """
    difference = torch.where(mask, trainer - engine, torch.zeros_like(trainer))
    ratio = difference.clamp(-30.0, 30.0).exp()
    if settings.name == "masked_is":
        inside = mask & (ratio >= settings.mask_low) & (ratio <= settings.mask_high)
        terms = -advantages * ratio
        return LossSums(torch.where(inside, terms, torch.zeros_like(terms)).sum(), (mask & ~inside).sum())
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    terms = -torch.minimum(ratio * advantages, clipped * advantages)
    still = mask & (ratio * advantages > clipped * advantages)
    return LossSums(torch.where(mask, terms, torch.zeros_like(terms)).sum(), still.sum())


def k3(trainer: torch.Tensor, engine: torch.Tensor) -> torch.Tensor:
    """Estimator exp(d) - 1 - d of KL(engine || trainer) by token, d = trainer - engine, in float64."""
    d = (trainer.double() - engine.double()).clamp(-30.0, 30.0)
    return torch.expm1(d) - d
