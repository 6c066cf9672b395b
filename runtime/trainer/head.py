"""The output head, fused with what the trainer asks of it: log probability and entropy, no logits kept.

Hidden states pass `lm_head` in chunks of tokens, forward and again in backward, so that the logits of one chunk
alone are alive. The module is still called once a micro-batch: FSDP2 gathers its weight once, keeps it for all
chunks and reduces one gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from prlc.runtime.trainer.titan import Linear
from prlc.schema.trainer import HEAD_CHUNK_TOKENS
from torch.distributed.tensor import DTensor, Partial

VOCABULARY_PARTS = 16  # a row's sums go over slices of the vocabulary, so that temporaries stay small


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b accumulated and returned in float32, whatever the inputs' dtype."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _add_product(to: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """to += a @ b in float32, without a second tensor of the size of `to`."""
    if a.is_cuda and a.dtype != torch.float32:
        torch.addmm(to, a, b, out_dtype=torch.float32, out=to)
    else:
        to.addmm_(a.float(), b.float())


def _row_sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log of the sum of exponentials, entropy in nats) of each row of logits [T, V] in float32."""
    highest = logits.amax(1, keepdim=True)
    total, moment = torch.zeros_like(highest), torch.zeros_like(highest)
    for part in logits.split(-(-logits.size(1) // VOCABULARY_PARTS), dim=1):
        shifted = part - highest
        weights = shifted.exp()
        total += weights.sum(1, keepdim=True)
        moment += weights.mul_(shifted).sum(1, keepdim=True)
    normaliser = highest + total.log()
    return normaliser[:, 0], (total.log() - moment / total)[:, 0]


class _Scores(torch.autograd.Function):
    """(log probability of the label, entropy) of each token; the entropy carries no gradient."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, temperature: float, chunk: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden [T, D], weight [V, D], labels [T]; two float32 tensors [T]."""
        logprobs, entropies, normalisers = (
            torch.empty(len(hidden), dtype=torch.float32, device=hidden.device) for _ in range(3)
        )
        for low in range(0, len(hidden), chunk):
            part = slice(low, low + chunk)
            logits = _product(hidden[part], weight.t()).div_(temperature)
            normalisers[part], entropies[part] = _row_sums(logits)
            logprobs[part] = logits.gather(1, labels[part, None])[:, 0] - normalisers[part]
            del logits  # before the next chunk's are made
        ctx.save_for_backward(hidden, weight, labels, normalisers)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """d logits = (one-hot label - probabilities) x grad / temperature, chunk by chunk, sums in float32."""
        hidden, weight, labels, normalisers = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if wants_weight else None
        for low in range(0, len(hidden), ctx.chunk):
            part = slice(low, low + ctx.chunk)
            scale = grads[0][part, None] / ctx.temperature
            change = _product(hidden[part], weight.t()).div_(ctx.temperature)
            change.sub_(normalisers[part, None]).exp_().mul_(-scale)
            change.scatter_add_(1, labels[part, None], scale)
            low_precision = change.to(hidden.dtype)
            del change
            if to_hidden is not None:
                to_hidden[part] = _product(low_precision, weight)
            if to_weight is not None:
                _add_product(to_weight, low_precision.t(), hidden[part])
            del low_precision
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None, None


def fused_scores(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, temperature: float, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probability of the labels and entropy under softmax(hidden @ weight.T / temperature), float32.

    hidden [B, L, D], weight [V, D], labels [B, L]; both results [B, L]. At most `chunk` x V logits are alive.
    The gradient of the log probabilities reaches hidden and weight; the entropy has none. Tokens with a label below
    0 cost nothing and get 0 for both.
    """
    flat, tokens = labels.flatten().long(), hidden.flatten(0, -2)
    asked = (flat >= 0).nonzero()[:, 0]
    if len(asked) == len(flat):
        scores = _Scores.apply(tokens, weight, flat, temperature, chunk)
    else:
        some = _Scores.apply(tokens.index_select(0, asked), weight, flat[asked], temperature, chunk)
        scores = tuple(part.new_zeros(len(flat)).index_copy(0, asked, part) for part in some)
    logprobs, entropies = (part.view(labels.shape) for part in scores)
    return logprobs, entropies


class FusedHead(Linear):
    """A linear head that answers logits, or while `asked` is set, (logprob, entropy) of labels as [B, L, 2]."""

    @dataclass(kw_only=True, slots=True)
    class Config(Linear.Config):
        """As the head it replaces."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.chunk_tokens = HEAD_CHUNK_TOKENS
        self.asked: tuple[torch.Tensor, float] | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input [B, L, D]; with labels asked for, the global batch's scores where the input is a DTensor."""
        if self.asked is None:
            return super().forward(input)
        labels, temperature = self.asked
        weight: Any = self.weight
        if not isinstance(input, DTensor):
            return torch.stack(fused_scores(input, weight, labels, temperature, self.chunk_tokens), -1)
        # Each rank's tokens give a part of the weight's gradient; FSDP2 adds the parts.
        whole = weight.to_local(grad_placements=[Partial()] * weight.device_mesh.ndim)
        scores = fused_scores(input.to_local(), whole, labels, temperature, self.chunk_tokens)
        result: torch.Tensor = DTensor.from_local(
            torch.stack(scores, -1), input.device_mesh, input.placements, run_check=False
        )
        return result


def swap_head(config: Any) -> None:
    """Put the fused head into a model config that is not built yet."""
    old = config.lm_head
    config.lm_head = FusedHead.Config(**{f.name: getattr(old, f.name) for f in fields(old)})


@contextmanager
def asking(model: Any, labels: torch.Tensor, temperature: float) -> Iterator[None]:
    """Until the block ends the model answers scores of these labels [B, L] (this rank's; below 0: none) for logits."""
    model.lm_head.asked = (labels, temperature)
    try:
        yield
    finally:
        model.lm_head.asked = None
