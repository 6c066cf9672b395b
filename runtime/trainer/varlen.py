"""Attention over packed rows without a mask: torch's variable-length kernels, for bf16 and fp16 on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

LARGEST_HEAD = 256  # head size that the kernels take


@dataclass(frozen=True)
class Bounds:
    """Where the documents of rows [B, L], laid end to end, begin: int32 [documents + 1]; the longest, in tokens."""

    starts: torch.Tensor
    longest: int


def bounds(documents: torch.Tensor) -> Bounds:
    """Bounds of documents [B, L]; a run of equal numbers within a row is one, padding too. Waits for the device."""
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = first.reshape(-1).nonzero()[:, 0].to(torch.int32)
    starts = F.pad(starts, (0, 1), value=documents.numel())
    return Bounds(starts, int(starts.diff().max()))


def serves(q: torch.Tensor) -> bool:
    """Whether the kernels take such queries [..., H]."""
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.size(-1) <= LARGEST_HEAD


def attend_documents(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    where: Bounds,
    window: int,
    scale: float | None,
    wants_sums: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Causal attention within documents: q [B, L, N, H], k [B, L, K, H], v [B, L, K, Hv], K a divisor of N.

    `window` > 0: a query sees that many keys, itself included. With `wants_sums` also the log of the sum of
    exponentials [B, L, N] in float32.
    """
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    batch, length, heads, _ = q.shape
    value = v.size(-1)
    v = F.pad(v, (0, k.size(-1) - value))  # the kernels want one head size
    result = varlen_attn(
        *(t.flatten(0, 1) for t in (q, k, v)),
        where.starts,
        where.starts,
        where.longest,
        where.longest,
        scale=scale,
        window_size=(window - 1 if window else -1, 0),
        enable_gqa=k.size(2) != heads,
        return_aux=AuxRequest(lse=True) if wants_sums else None,
    )
    out, sums = result if isinstance(result, tuple) else (result, None)
    out = out.view(batch, length, heads, -1)[..., :value]
    return out, None if sums is None else sums.transpose(0, 1).reshape(batch, length, heads)
