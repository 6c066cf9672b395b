"""Stand-ins for the sampling kernels of Model Runner V2 (see v2_kernels.py); arguments in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_MASK = 2**64 - 1


def uniform(seed: int, position: int, count: int) -> Any:
    """`count` numbers in (0, 1), float64, that depend on (seed, position, index) only: splitmix64's
    finalizer.
    """
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(seed & _MASK) * np.uint64(0xD1B54A32D192ED03)
        x += np.uint64(position & _MASK) * np.uint64(0x8CB92BA72F3D8DD7)
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gumbel_sample(
    grid: tuple[int, ...],
    local_argmax: torch.Tensor,
    local_argmax_stride: int,
    local_max: torch.Tensor,
    local_max_stride: int,
    logits_cache: torch.Tensor | None,
    logits_cache_stride_0: int,
    logits_cache_stride_1: int,
    logits_cache_col: torch.Tensor | None,
    logits_cache_source: torch.Tensor | None,
    logits_cache_source_stride: int,
    logits: torch.Tensor,
    logits_stride: int,
    expanded_idx_mapping: torch.Tensor,
    seeds: torch.Tensor,
    pos: torch.Tensor,
    temp: torch.Tensor,
    vocab_size: int,
    BLOCK_SIZE: int,
    IS_DRAFTING: bool,
    APPLY_TEMPERATURE: bool,
    USE_FP64: bool,
    PER_TOKEN_COL: bool,
) -> Any:
    """One token a row by Gumbel's trick; greedy where the temperature is 0. Its random numbers are not
    Triton's.
    """
    if logits_cache is not None or IS_DRAFTING:
        return NotImplemented
    rows = logits[:, :vocab_size].float()
    temperatures, all_seeds, positions = temp.tolist(), seeds.tolist(), pos.tolist()
    local_argmax.zero_()
    local_max.fill_(float("-inf"))
    for row, state in enumerate(expanded_idx_mapping.tolist()):
        temperature = temperatures[state] if state >= 0 else 0.0
        scores = rows[row]
        if temperature != 0.0:
            if APPLY_TEMPERATURE:
                scores = scores / temperature
            noise = -np.log(-np.log(uniform(int(all_seeds[state]), int(positions[row]), vocab_size)))
            scores = scores.double() + torch.from_numpy(noise)
        value, index = scores.max(-1)
        local_argmax[row, 0] = index
        local_max[row, 0] = value
    return None


def log_softmax(
    grid: tuple[int, ...],
    output: torch.Tensor,
    logits: torch.Tensor,
    logits_stride: int,
    token_ids: torch.Tensor,
    token_ids_stride: int,
    topk: int,
    vocab_size: int,
    BLOCK_SIZE: int,
    TOPK_BLOCK_SIZE: int,
) -> None:
    """Logprobs of `token_ids` [rows, topk] under `logits`."""
    output.copy_(logits[:, :vocab_size].float().log_softmax(-1).gather(1, token_ids))


def ranks(
    grid: tuple[int, ...],
    output: torch.Tensor,
    logits: torch.Tensor,
    logits_stride: int,
    token_ids: torch.Tensor,
    vocab_size: int,
    BLOCK_SIZE: int,
) -> None:
    """How many logits of a row are at least the chosen token's."""
    rows = logits[:, :vocab_size]
    output.copy_((rows >= rows.gather(1, token_ids.view(-1, 1).long())).sum(-1))
