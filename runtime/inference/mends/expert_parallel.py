"""Expert parallelism on the CPU: two collectives over gloo, and experts that know their own share.

Faults (vLLM 0.32.0): `CpuCommunicator` has no `all_gatherv` and no `reduce_scatterv` (NotImplementedError at
the first request with data and expert parallelism); `CPUUnquantizedExperts.apply` ignores the expert map
(segmentation fault with tensor and expert parallelism). Mend: both collectives by all-gather and all-reduce
of the CPU group, and a token's experts that live elsewhere get weight 0 here.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
import torch.distributed
from prlc.runtime.inference.mends import MendError

# gloo has no all-gather of these; their bytes are moved.
_AS_BYTES = (torch.uint16, torch.bfloat16, torch.float16)


def gather_rows(x: torch.Tensor, sizes: list[int], group: Any) -> torch.Tensor:
    """Rows of every rank of `group`, in rank order; rank i gives `sizes[i]` rows, `x` are this rank's."""
    padded = x.new_zeros((max(sizes), *x.shape[1:]))
    padded[: x.shape[0]] = x
    parts = [torch.empty_like(padded) for _ in sizes]
    if padded.numel():
        if padded.dtype in _AS_BYTES:
            views = [part.view(torch.uint8) for part in parts]
            torch.distributed.all_gather(views, padded.view(torch.uint8), group=group)
        else:
            torch.distributed.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def reduce_rows(x: torch.Tensor, sizes: list[int], rank: int, group: Any) -> torch.Tensor:
    """This rank's `sizes[rank]` rows of the sum over ranks of `x`; the sum is taken in fp32."""
    total = x.to(torch.float32, copy=True).contiguous()
    torch.distributed.all_reduce(total, group=group)
    start = sum(sizes[:rank])
    return total[start : start + sizes[rank]].to(x.dtype)


def local_share(
    topk_weights: torch.Tensor, topk_ids: torch.Tensor, expert_map: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights, local expert indexes) of a rank: an expert that is elsewhere (map -1) becomes index 0, weight
    0.
    """
    local = expert_map[topk_ids.long()]
    here = local >= 0
    ids = torch.where(here, local, torch.zeros_like(local)).to(torch.int32).contiguous()
    return (topk_weights * here).float().contiguous(), ids


def _all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
    if dim != 0:
        raise ValueError(f"all_gatherv on the CPU gathers rows only, not dimension {dim}")
    if isinstance(input_, (list, tuple)):
        return [_all_gatherv(self, part, 0, sizes) for part in input_]
    return gather_rows(input_.contiguous(), sizes or [input_.shape[0]] * self.world_size, self.cpu_group)


def _reduce_scatterv(self: Any, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
    if dim not in (0, -input_.dim()):
        raise ValueError(f"reduce_scatterv on the CPU scatters rows only, not dimension {dim}")
    if sizes is None:
        sizes = [input_.shape[0] // self.world_size] * self.world_size
    return reduce_rows(input_, sizes, self.rank_in_group, self.cpu_group)


def mended_apply(stock: Any) -> Any:
    """`CPUUnquantizedExperts.apply` that honours the expert map."""

    @wraps(stock)
    def apply(
        self: Any,
        output: Any,
        hidden_states: Any,
        w1: Any,
        w2: Any,
        topk_weights: Any,
        topk_ids: Any,
        activation: Any,
        global_num_experts: int,
        expert_map: Any,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if expert_map is not None:
            topk_weights, topk_ids = local_share(topk_weights, topk_ids, expert_map)
        head = (output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, None)
        stock(self, *head, *args, **kwargs)

    return apply


def apply() -> None:
    """Put the mend in place. Raises MendError where vLLM has the collectives itself."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    for name, function in (("all_gatherv", _all_gatherv), ("reduce_scatterv", _reduce_scatterv)):
        if vars(CpuCommunicator).get(name, function) is not function:
            raise MendError(f"CpuCommunicator has a {name} of its own: this mend is no longer needed")
        setattr(CpuCommunicator, name, function)
    if not hasattr(CPUUnquantizedExperts.apply, "__wrapped__"):
        CPUUnquantizedExperts.apply = mended_apply(CPUUnquantizedExperts.apply)
