"""One optimizer step over a batch: forward passes with and without replay, gradients, update, numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from prlc.runtime.replay.router import replaying
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.head import asking
from prlc.runtime.trainer.loss import k3, policy_loss
from prlc.runtime.trainer.model import Trainable
from prlc.runtime.trainer.packing import Rows, fill_rows, plan_rows
from prlc.runtime.transport.batches import Batch
from prlc.schema.trainer import Optimizer, TrainerConfig


def build_optimizer(model: Trainable, settings: Optimizer) -> torch.optim.AdamW:
    """AdamW over all parameters; one tensor at a time, since experts live on another mesh than the rest."""
    return torch.optim.AdamW(
        model.module.parameters(),
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        foreach=False,
    )


def learning_rate(settings: Optimizer, step: int) -> float:
    """Rate of the 1-based `step`: linear warm-up, then constant."""
    if settings.warmup_steps and step < settings.warmup_steps:
        return settings.lr * step / settings.warmup_steps
    return settings.lr


def rows_of(model: Trainable, batch: Batch, micro_batch_tokens: int) -> list[Rows]:
    """This rank's micro-batches."""
    rank, size = model.data_rank
    plan = plan_rows(batch.lengths(), size, micro_batch_tokens)
    return [fill_rows(batch, rows, plan.width) for rows in plan.rows[rank]]


def forward(
    model: Trainable,
    rows: Rows,
    temperature: float,
    replay: bool,
    backward: Callable[[torch.Tensor], None] | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log probabilities of the labels, entropies in nats), [rows, width] float32.

    `backward` gets the log probabilities while replay is still on.
    """

    def put(array: Any) -> torch.Tensor:
        return torch.from_numpy(array).to(model.device)

    tokens, positions, documents = put(rows.tokens), put(rows.positions), put(rows.documents)
    width = tokens.size(1)
    causal = torch.ones(width, width, dtype=torch.bool, device=model.device).tril()
    mask = (documents[:, :, None] == documents[:, None, :]) & causal
    ids = None
    if replay:
        if rows.routed is None:
            raise ValueError("replay is on, but the batch has no routed experts")
        if rows.routed.shape[2:] != (model.routers, model.top_k):
            raise ValueError(
                f"recorded routing is {rows.routed.shape[2:]} (layers, top_k), "
                f"the model's {(model.routers, model.top_k)}"
            )
        if rows.routed.max(initial=-1) >= model.experts:
            raise ValueError(f"a recorded expert is outside 0..{model.experts - 1}")
        routed = put(rows.routed)
        ids = [routed[:, :, layer].contiguous() for layer in range(model.routers)]
    inputs, extra = titan.place_inputs(model.dims, tokens, {"positions": positions, "attention_masks": mask})
    with replaying(model.module, ids), asking(model.module, put(rows.labels), temperature):
        scores = model.module(inputs, **extra)
        local = scores.to_local() if hasattr(scores, "to_local") else scores
        if backward is not None:
            backward(local[..., 0])
    return local[..., 0].detach(), local[..., 1].detach()


def measure(model: Trainable, micro: list[Rows], temperature: float, replay: bool) -> list[torch.Tensor]:
    """Log probabilities without gradients; the model is resharded after it."""
    with torch.no_grad():
        out = [forward(model, rows, temperature, replay, None)[0] for rows in micro]
    titan.reshard(model.module)
    return out


def total(model: Trainable, values: list[float]) -> list[float]:
    """Sums over all ranks, in float64."""
    tensor = torch.tensor(values, dtype=torch.float64, device=model.device)
    dist.all_reduce(tensor)
    return [float(value) for value in tensor]


def train_step(
    model: Trainable,
    optimizer: torch.optim.Optimizer,
    settings: TrainerConfig,
    batch: Batch,
    step: int,
    compare: bool,
) -> dict[str, float]:
    """Apply batch `step`; answers the step's numbers, equal on all ranks.

    mismatch_kl* are measured with the weights before the update. `compare` adds those without replay, and
    `replay_excess`, `replay_noise`: the mean by which replay is worse, and its standard error.
    """
    temperature = float(batch.meta.get("temperature", 1.0))
    micro = rows_of(model, batch, settings.micro_batch_tokens)
    tokens = max(1.0, float((batch.loss_mask != 0).sum()))
    natural = measure(model, micro, temperature, False) if compare else None
    sums = [0.0] * 8
    for number, rows in enumerate(micro):
        mask = torch.from_numpy(rows.mask).to(model.device)
        engine = torch.from_numpy(rows.engine).to(model.device)
        advantages = torch.from_numpy(rows.advantages).to(model.device)
        fresh = torch.from_numpy(rows.versions == step - 1).to(model.device) & mask

        def backward(
            logprobs: torch.Tensor, mask: Any = mask, engine: Any = engine, advantages: Any = advantages
        ) -> None:
            result = policy_loss(settings.loss, logprobs, engine, advantages, mask)
            (result.loss / tokens).backward()
            sums[0] += float(result.loss.detach())
            sums[1] += float(result.masked)

        logprobs, _ = forward(model, rows, temperature, settings.replay.enabled, backward)
        with_replay = k3(logprobs, engine)
        sums[2] += float(with_replay[mask].sum())
        sums[3] += float(with_replay[fresh].sum())
        sums[4] += float(fresh.sum())
        if natural is not None:
            without = k3(natural[number], engine)
            sums[5] += float(without[mask].sum())
            sums[6] += float(without[fresh].sum())
            sums[7] += float((with_replay - without)[mask].square().sum())
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings.optimizer, step)
    norm = titan.clip_gradients(model.module, settings.optimizer.max_grad_norm, model.dims.ep_enabled)
    if norm != norm or norm == float("inf"):
        raise FloatingPointError(f"the gradient norm of step {step} is {norm}")
    optimizer.step()
    optimizer.zero_grad()
    loss, masked, kl, kl_fresh, fresh_count, other, other_fresh, squares = total(model, sums)
    numbers = {
        "loss": loss / tokens,
        "grad_norm": norm,
        "masked_share": masked / tokens,
        "trained_tokens": tokens,
        "fresh_tokens": fresh_count,
        "mismatch_kl": kl / tokens,
        "mismatch_kl_fresh": kl_fresh / max(1.0, fresh_count),
    }
    if natural is not None:
        excess = (kl - other) / tokens
        numbers["mismatch_kl_no_replay"] = other / tokens
        numbers["mismatch_kl_no_replay_fresh"] = other_fresh / max(1.0, fresh_count)
        numbers["replay_excess"] = excess
        numbers["replay_noise"] = (max(0.0, squares / tokens - excess**2) / tokens) ** 0.5
    return numbers
