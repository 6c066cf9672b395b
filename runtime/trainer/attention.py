"""Attention with a dense mask: the one inner attention that trains on a CPU, and SDPA on a GPU.

torchtitan's own choices (FlexAttention, varlen) have no backward on a CPU. Argument names are fixed:
torchtitan finds the sharding of an input by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from prlc.runtime.trainer.titan import FlexAttention
from torch.distributed.tensor import DTensor


class DenseMaskAttention(FlexAttention):
    """softmax(Q K^T) V under a boolean mask [B, Lq, Lk], True where a query sees a key."""

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):
        """No settings of its own."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: torch.Tensor,
        scale: float | None = None,
        enable_gqa: bool = False,
        **unused: Any,
    ) -> torch.Tensor:
        """Tensors are [batch, length, heads, head size]."""
        mask = attention_masks.to_local() if isinstance(attention_masks, DTensor) else attention_masks
        q, k, v = (t.transpose(1, 2) for t in (q_BLNH, k_BLNH, v_BLNH))
        if k.size(1) != q.size(1):
            repeat = q.size(1) // k.size(1)
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        if q.device.type == "cuda":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=scale).transpose(1, 2)
        factor = q.size(-1) ** -0.5 if scale is None else scale
        scores = (q.float() @ k.float().transpose(-1, -2)) * factor
        weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
        return (weights.to(v.dtype) @ v).transpose(1, 2)
