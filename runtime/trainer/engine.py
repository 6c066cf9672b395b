"""One optimizer step over a batch: forward passes with and without replay, gradients, update, numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from prlc.runtime.replay.router import replaying
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import Visibility
from prlc.runtime.trainer.head import asking
from prlc.runtime.trainer.loss import Tokens, by_sample, k3, policy_loss
from prlc.runtime.trainer.model import Trainable
from prlc.runtime.trainer.optimizer import learning_rate
from prlc.runtime.trainer.packing import Rows, fill_rows, plan_rows, trained_only
from prlc.runtime.transport.batches import Batch
from prlc.schema.trainer import TrainerConfig


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
    extra = {"positions": positions, "attention_masks": Visibility(documents)}
    inputs, extra = titan.place_inputs(model.dims, tokens, extra)
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


class Tally:
    """Sums and maxima by name, kept on the device in float64 and joined over all ranks once, at the end.

    copies: ranks that note the same rows, under context parallelism.
    """

    def __init__(self, device: torch.device, copies: int) -> None:
        self.device, self.copies = device, copies
        self.sums: dict[str, torch.Tensor] = {}
        self.maxima: dict[str, torch.Tensor] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        """Add the sum of `values`."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        self.sums[name] = self.sums.get(name, zero) + values.detach().sum(dtype=torch.float64)

    def top(self, name: str, values: torch.Tensor) -> None:
        """Note the largest of `values`, none of them below 0; there may be none."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        here = values.detach().double().max() if values.numel() else zero
        self.maxima[name] = torch.maximum(self.maxima.get(name, zero), here)

    def joined(self) -> dict[str, float]:
        """Over all ranks; every rank must have noted the same names in the same order."""
        out: dict[str, float] = {}
        sums, maxima = (dist.ReduceOp.SUM, self.copies), (dist.ReduceOp.MAX, 1)
        for values, (kind, copies) in ((self.sums, sums), (self.maxima, maxima)):
            if values:
                tensor = torch.stack(list(values.values()))
                dist.all_reduce(tensor, op=kind)
                out |= dict(zip(values, (tensor / copies).tolist(), strict=True))
        return out


def denominator(batch: Batch, loss: str) -> float:
    """What a batch's summed loss is divided by: its trained tokens, or its samples that have any; at least 1."""
    trained = batch.loss_mask != 0
    if not by_sample(loss):
        return max(1.0, float(trained.sum()))
    counts = np.add.reduceat(trained, batch.sample_offsets[:-1], dtype=np.int64)
    return max(1.0, float((counts > 0).sum()))


def train_step(
    model: Trainable,
    optimizer: torch.optim.Optimizer,
    settings: TrainerConfig,
    batch: Batch,
    step: int,
    compare: bool,
) -> dict[str, float]:
    """Apply batch `step`; answers the step's numbers, equal on all ranks.

    All but grad_norm are of the weights before the update: entropy in nats, ratio = trainer / engine probability,
    mismatch_kl*. `compare` adds those without replay, and `replay_excess`, `replay_noise`: the mean over fresh
    tokens by which replay is worse, and its standard error.
    """
    temperature = float(batch.meta.get("temperature", 1.0))
    micro = [trained_only(rows) for rows in rows_of(model, batch, settings.micro_batch_tokens)]
    tokens, divisor = max(1.0, float((batch.loss_mask != 0).sum())), denominator(batch, settings.loss.name)
    natural = measure(model, micro, temperature, False) if compare else None
    tally = Tally(model.device, model.sequence_rank[1])
    for number, rows in enumerate(micro):
        mask, engine, advantages, versions, sequences = (
            torch.from_numpy(array).to(model.device)
            for array in (rows.mask, rows.engine, rows.advantages, rows.versions, rows.sequences)
        )
        fresh = (versions == step - 1) & mask

        def backward(
            logprobs: torch.Tensor,
            made: tuple[torch.Tensor, ...] = (engine, advantages, mask, fresh, sequences),
        ) -> None:
            result = policy_loss(settings.loss, Tokens(logprobs, *made))
            (result.loss / divisor).backward()
            tally.add("loss", result.loss)
            tally.add("masked", result.masked)

        logprobs, entropies = forward(model, rows, temperature, settings.replay.enabled, backward)
        ratios = (logprobs - engine)[mask].double().exp()
        tally.add("entropy", entropies[mask])
        tally.add("ratio", ratios)
        tally.top("ratio_max", ratios)
        with_replay = k3(logprobs, engine)
        tally.add("kl", with_replay[mask])
        tally.add("kl_fresh", with_replay[fresh])
        tally.add("fresh", fresh)
        if natural is not None:
            without = k3(natural[number], engine)
            tally.add("other", without[mask])
            tally.add("other_fresh", without[fresh])
            tally.add("squares", (with_replay - without)[fresh].square())
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings.optimizer, step, settings.max_steps)
    norm = titan.clip_gradients(model.module, settings.optimizer.max_grad_norm, model.dims.ep_enabled)
    if norm != norm or norm == float("inf"):
        raise FloatingPointError(f"the gradient norm of step {step} is {norm}")
    optimizer.step()
    optimizer.zero_grad()
    return {"grad_norm": norm, "trained_tokens": tokens, **_means(tally.joined(), tokens, divisor)}


def _means(sums: dict[str, float], tokens: float, divisor: float) -> dict[str, float]:
    """A step's numbers of its joined sums."""
    fresh = max(1.0, sums["fresh"])
    numbers = {
        "loss": sums["loss"] / divisor,
        "entropy": sums["entropy"] / tokens,
        "ratio_mean": sums["ratio"] / tokens,
        "ratio_max": sums["ratio_max"],
        "masked_share": sums["masked"] / tokens,
        "fresh_tokens": sums["fresh"],
        "mismatch_kl": sums["kl"] / tokens,
        "mismatch_kl_fresh": sums["kl_fresh"] / fresh,
    }
    if "other" in sums:
        excess = (sums["kl_fresh"] - sums["other_fresh"]) / fresh
        numbers["mismatch_kl_no_replay"] = sums["other"] / tokens
        numbers["mismatch_kl_no_replay_fresh"] = sums["other_fresh"] / fresh
        numbers["replay_excess"] = excess
        numbers["replay_noise"] = (max(0.0, sums["squares"] / fresh - excess**2) / fresh) ** 0.5
    return numbers
