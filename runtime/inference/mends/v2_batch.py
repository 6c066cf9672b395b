"""Stand-ins for the bookkeeping kernels of Model Runner V2 (see v2_kernels.py); arguments in the kernels'
order.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch


def positions_and_lengths(
    grid: tuple[int, ...],
    pos: torch.Tensor,
    seq_lens: torch.Tensor,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    max_num_reqs: int,
    BLOCK_SIZE: int,
) -> None:
    """Position of every token of the step, and each request's length after it (0 beyond the requests)."""
    count = grid[0] - 1
    starts = query_start_loc[: count + 1]
    lengths = starts[1:] - starts[:-1]
    computed = num_computed_tokens[idx_mapping[:count].long()].to(starts.dtype)
    seq_lens[:count] = (computed + lengths).to(seq_lens.dtype)
    seq_lens[count:max_num_reqs] = 0
    first, last = int(starts[0]), int(starts[count])
    shift = torch.repeat_interleave((computed - starts[:-1]).long(), lengths.long())
    pos[first:last] = (torch.arange(first, last) + shift).to(pos.dtype)


def combine_sampled(
    grid: tuple[int, ...],
    input_ids: torch.Tensor,
    idx_mapping: torch.Tensor,
    last_sampled: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    prefill_len: torch.Tensor,
    draft_tokens: torch.Tensor,
    draft_tokens_stride: int,
    cu_num_logits: torch.Tensor,
    logits_indices: torch.Tensor,
    BLOCK_SIZE: int,
    NUM_NEW_SAMPLED_TOKENS: int = 1,
) -> Any:
    """Put each request's last token into the step's input and say where its logits are. No drafts."""
    count = grid[0]
    if NUM_NEW_SAMPLED_TOKENS != 1 or int(cu_num_logits[count]) != count:
        return NotImplemented
    states = idx_mapping[:count].long()
    ends = query_start_loc[1 : count + 1].long()
    logits_indices[:count] = ends - 1
    generating = seq_lens[:count].long() > prefill_len[states].long()
    tokens = last_sampled[states[generating]].reshape(-1)
    input_ids[ends[generating] - 1] = tokens.to(input_ids.dtype)
    return None


def sampled_and_rejected(
    grid: tuple[int, ...],
    num_sampled: torch.Tensor,
    num_rejected: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_num_logits: torch.Tensor,
    idx_mapping: torch.Tensor,
    prefill_len: torch.Tensor,
) -> None:
    """Both counts are 0 for a request whose prompt is not done."""
    count = grid[0]
    unfinished = seq_lens[:count].long() < prefill_len[idx_mapping[:count].long()].long()
    num_sampled[:count] = torch.where(unfinished, 0, num_sampled[:count])
    logits = (cu_num_logits[1 : count + 1] - cu_num_logits[:count]).to(num_sampled.dtype)
    num_rejected[:count] = torch.where(unfinished, 0, logits - num_sampled[:count])


def post_update(
    grid: tuple[int, ...],
    idx_mapping: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    last_sampled: torch.Tensor,
    output_bin_counts: torch.Tensor | None,
    output_bin_counts_stride: int,
    sampled_tokens: torch.Tensor,
    sampled_tokens_stride: int,
    num_sampled: torch.Tensor,
    num_rejected: torch.Tensor,
    query_start_loc: torch.Tensor | None,
    all_token_ids: torch.Tensor,
    all_token_ids_stride: int,
    total_len: torch.Tensor,
    num_warps: int = 1,
) -> None:
    """Append a step's tokens to their requests. A request with a negative index is skipped."""
    sampled, rejected = num_sampled.tolist(), num_rejected.tolist()
    starts = None if query_start_loc is None else query_start_loc.tolist()
    for row, state in enumerate(idx_mapping[: grid[0]].tolist()):
        if state < 0:
            continue
        count = sampled[row]
        if count:
            tokens = sampled_tokens[row, :count]
            length = int(total_len[state])
            last_sampled[state] = tokens[-1]
            total_len[state] = length + count
            all_token_ids[state, length : length + count] = tokens.to(all_token_ids.dtype)
            if output_bin_counts is not None:
                ones = torch.ones(count, dtype=output_bin_counts.dtype)
                output_bin_counts[state].index_add_(0, tokens.long(), ones)
        query = 0 if starts is None else starts[row + 1] - starts[row]
        if query != rejected[row]:
            num_computed_tokens[state] += query - rejected[row]


def gather_block_tables(stock: Any) -> Any:
    """`BlockTables.gather_block_tables` by PyTorch: the step's requests' rows, zeros in padded rows."""

    @wraps(stock)
    def gather(self: Any, idx_mapping: Any, num_reqs_padded: int, out: Any = None, out_ptrs: Any = None) -> Any:
        targets = tuple(self.input_block_tables) if out is None else out
        count = idx_mapping.shape[0]
        states = idx_mapping.long()
        for source, target in zip(self.block_tables, targets, strict=True):
            target[:count] = source.gpu[states]
            target[count:num_reqs_padded] = 0
        return tuple(target[:num_reqs_padded] for target in targets)

    return gather


def compute_slot_mappings(stock: Any, pad: int) -> Any:
    """`BlockTables.compute_slot_mappings` by PyTorch; the kernel itself with context parallelism."""

    @wraps(stock)
    def compute(
        self: Any,
        idx_mapping: Any,
        query_start_loc: Any,
        positions: Any,
        num_tokens_padded: int,
        out: Any = None,
    ) -> Any:
        if self.cp_size != 1:
            return stock(self, idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        slots = self.slot_mappings if out is None else out
        count = idx_mapping.shape[0]
        starts = query_start_loc[: count + 1].long()
        first, last = int(starts[0]), int(starts[count])
        states = torch.repeat_interleave(idx_mapping.long(), starts[1:] - starts[:-1])
        where = positions[first:last].long()
        real, states = states >= 0, states.clamp(min=0)
        padding = torch.full_like(where, pad)
        for group, table in enumerate(self.block_tables):
            value = padding
            if self._slot_mapping_enabled[group]:
                size = self.block_sizes[group]
                value = torch.where(real, table.gpu[states, where // size].long() * size + where % size, padding)
            slots[group, first:last] = value
            slots[group, last:] = pad
        return slots[:, :num_tokens_padded]

    return compute
