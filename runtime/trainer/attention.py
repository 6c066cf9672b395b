"""The inner attention over packed rows: dense masks on a CPU, variable-length kernels on a GPU; heads exchanged under
context parallelism.

torchtitan's own choices (FlexAttention, varlen) have no backward on a CPU. Argument names are fixed:
torchtitan finds the sharding of an input by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from prlc.runtime.trainer import varlen
from prlc.runtime.trainer.titan import FlexAttention, exchange


class Visibility:
    """Which keys a query of a packed row sees: those of its own document that are not later, over whole rows."""

    def __init__(self, documents: torch.Tensor) -> None:
        """documents [B, width]: the document of each position; -1 is padding and sees padding alone."""
        self.documents = documents
        self._masks: dict[tuple[int, int], torch.Tensor] = {}
        self._bounds: dict[int, varlen.Bounds] = {}
        self.chosen: dict[int, torch.Tensor] = {}  # by layer: keys that sparse attention shares with later layers

    def bounds(self, length: int) -> varlen.Bounds:
        """Where documents begin in rows of `length`, as `mask` takes it."""
        if length not in self._bounds:
            self._bounds[length] = varlen.bounds(F.pad(self.documents, (0, length - self.width), value=-1))
        return self._bounds[length]

    @property
    def width(self) -> int:
        """Of the rows, in tokens."""
        return self.documents.size(1)

    def mask(self, length: int, window: int = 0) -> torch.Tensor:
        """Bool [B, length, length], True where query i sees key j; `window` > 0: and i - j < window.

        length: the width, or more where context parallelism padded the rows.
        """
        if (length, window) not in self._masks:
            self._masks[length, window] = self.seen(0, length, length, window)
        return self._masks[length, window]

    def seen(self, low: int, high: int, length: int, window: int = 0) -> torch.Tensor:
        """Rows low to high of the mask: bool [B, high - low, length]."""
        documents = F.pad(self.documents, (0, length - self.width), value=-1)
        near = torch.ones(high - low, length, dtype=torch.bool, device=documents.device).tril(low)
        if window:
            near = near.triu(low + 1 - window)
        return (documents[:, low:high, None] == documents[:, None, :]) & near


class PackedAttention(FlexAttention):
    """softmax(Q K^T) V, each query over the keys that it may see.

    Under context parallelism each rank holds a slice of the sequence; an all-to-all gives it whole sequences of a
    part of the heads, and another brings the result back (DeepSpeed Ulysses, arXiv 2309.14509).
    """

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):
        """`window`: keys that a query sees, itself included; 0: all."""

        window: int = 0

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.window = config.window
        self.cp: Any = None

    def parallelize(self, parallel_dims: Any) -> None:
        """Also remember the ranks that share a sequence."""
        super().parallelize(parallel_dims)
        self.cp = parallel_dims.get_optional_mesh("cp")

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: Visibility,
        scale: float | None = None,
        out_transform: Any = None,
        **unused: Any,
    ) -> torch.Tensor:
        """Tensors are [batch, length, heads, head size]; out_transform(out, log of the sum of exponentials)."""
        size = 1 if self.cp is None else self.cp.size()
        if size > 1:
            if k_BLNH.size(2) < size:  # each rank gets the key head that its query heads share
                k_BLNH, v_BLNH = (t.repeat_interleave(size // t.size(2), 2) for t in (k_BLNH, v_BLNH))
            q_BLNH, k_BLNH, v_BLNH = (to_heads(t, self.cp) for t in (q_BLNH, k_BLNH, v_BLNH))
        length, wants_sums = q_BLNH.size(1), out_transform is not None
        if isinstance(attention_masks, Visibility) and varlen.serves(q_BLNH):
            where = attention_masks.bounds(length)
            out, normaliser = varlen.attend_documents(q_BLNH, k_BLNH, v_BLNH, where, self.window, scale, wants_sums)
        else:
            mask = attention_masks.mask(length, self.window)
            out, normaliser = attend(q_BLNH, k_BLNH, v_BLNH, mask, scale, wants_sums)
        if size > 1:
            out = to_sequence(out, self.cp)
            normaliser = None if normaliser is None else to_sequence(normaliser[..., None], self.cp)[..., 0]
        if out_transform is None:
            return out
        transformed: torch.Tensor = out_transform(out, normaliser)
        return transformed


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float | None, wants_sums: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention [B, L, N, Hv] of q, k [B, L, N, H], v [B, L, N, Hv] and a mask [B, L, L]; fewer key heads repeat.

    With `wants_sums` also the log of the sum of exponentials [B, L, N] in float32.
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if k.size(1) != q.size(1):
        repeat = q.size(1) // k.size(1)
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    if q.device.type == "cuda" and not wants_sums:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=scale).transpose(1, 2), None
    factor = q.size(-1) ** -0.5 if scale is None else scale
    scores = (q.float() @ k.float().transpose(-1, -2)) * factor
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    out = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2)
    return out, scores.logsumexp(-1).transpose(1, 2) if wants_sums else None


def to_heads(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    """[B, L / cp, N, H] of all heads to [B, L, N / cp, H] of this rank's heads."""
    batch, length, heads, width = x.shape
    parts = x.view(batch, length, mesh.size(), heads // mesh.size(), width).permute(2, 0, 1, 3, 4)
    return exchange(parts, mesh).permute(1, 0, 2, 3, 4).reshape(batch, -1, heads // mesh.size(), width)


def to_sequence(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    """[B, L, N / cp, H] of this rank's heads to [B, L / cp, N, H] of all heads."""
    batch, length, heads, width = x.shape
    parts = x.view(batch, mesh.size(), length // mesh.size(), heads, width).permute(1, 0, 2, 3, 4)
    return exchange(parts, mesh).permute(1, 2, 0, 3, 4).reshape(batch, length // mesh.size(), -1, width)
