"""PyTorch stand-ins for the Triton kernels that Model Runner V2 launches in every step.

Fault: interpreted (see triton_interpreter.py), nine small kernels take 95 % of a step, about 20 ms a request.
Mend: the same results by PyTorch, in v2_sampling.py and v2_batch.py. A stand-in answers NotImplemented to a
case that it does not know (drafts, context parallelism); the kernel itself, interpreted, then does the work.
Drop them when vLLM has its own (vLLM pull request 55847).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prlc.runtime.inference.mends import MendError


class StandIn:
    """Launches like a Triton kernel, `kernel[grid](...)`; `stock` is the kernel that it stands in for."""

    def __init__(self, function: Callable[..., Any], stock: Any) -> None:
        self.function = function
        self.stock = stock

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """The launcher of one grid."""

        def launch(*args: Any, **kwargs: Any) -> None:
            if self.function(grid, *args, **kwargs) is NotImplemented:
                self.stock[grid](*args, **kwargs)

        return launch


def apply() -> None:
    """Put the stand-ins in place. Raises MendError if a kernel has gone."""
    from prlc.runtime.inference.mends import v2_batch, v2_sampling
    from vllm.v1.worker.gpu import block_table, input_batch
    from vllm.v1.worker.gpu.sample import gumbel, logprob

    for module, name, function in (
        (gumbel, "_gumbel_sample_kernel", v2_sampling.gumbel_sample),
        (logprob, "_topk_log_softmax_kernel", v2_sampling.log_softmax),
        (logprob, "_ranks_kernel", v2_sampling.ranks),
        (input_batch, "_prepare_pos_seq_lens_kernel", v2_batch.positions_and_lengths),
        (input_batch, "_combine_sampled_and_draft_tokens_kernel", v2_batch.combine_sampled),
        (input_batch, "_get_num_sampled_and_rejected_kernel", v2_batch.sampled_and_rejected),
        (input_batch, "_post_update_kernel", v2_batch.post_update),
    ):
        stock = getattr(module, name, None)
        if stock is None:
            raise MendError(f"{module.__name__}.{name} is gone: the stand-ins do not fit this vLLM")
        if not isinstance(stock, StandIn):
            setattr(module, name, StandIn(function, stock))
    tables = block_table.BlockTables
    if not hasattr(tables.gather_block_tables, "__wrapped__"):
        tables.gather_block_tables = v2_batch.gather_block_tables(tables.gather_block_tables)
        tables.compute_slot_mappings = v2_batch.compute_slot_mappings(
            tables.compute_slot_mappings, block_table.PAD_SLOT_ID
        )
