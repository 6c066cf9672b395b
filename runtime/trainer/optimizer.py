"""The optimizer of a run and its learning rate by step."""

from __future__ import annotations

import math
from typing import Any

import torch
from prlc.runtime.trainer.muon import Muon, is_matrix
from prlc.schema.trainer import Optimizer


def build_optimizer(module: Any, settings: Optimizer) -> torch.optim.Optimizer:
    """Over all parameters, one tensor at a time, since experts lie on another mesh than the rest.

    Raises ValueError on muon with offload: its products belong on the GPU, the offloaded state does not.
    """
    if settings.name == "muon":
        if settings.offload == "cpu":
            raise ValueError("muon cannot be offloaded to the CPU: set optimizer.offload to none, or use adamw")
        named = list(module.named_parameters())
        return Muon(
            [parameter for name, parameter in named if is_matrix(name, parameter)],
            [parameter for name, parameter in named if not is_matrix(name, parameter)],
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            betas=settings.betas,
            eps=settings.eps,
        )
    return torch.optim.AdamW(
        module.parameters(),
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        foreach=False,
    )


def learning_rate(settings: Optimizer, step: int, max_steps: int) -> float:
    """Rate of the 1-based `step`: linear warm-up, then the schedule.

    linear and cosine fall from lr, at the last step of the warm-up, towards 0, which they would reach one step after
    the run's last, so that no step is without effect.
    """
    if step < settings.warmup_steps:
        return settings.lr * step / settings.warmup_steps
    start = max(1, settings.warmup_steps)
    gone = (step - start) / max(1, max_steps + 1 - start)
    if settings.schedule == "linear":
        return settings.lr * (1 - gone)
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * gone)) / 2
    return settings.lr
