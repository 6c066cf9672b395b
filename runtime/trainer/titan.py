"""The one module that imports torchtitan (pinned 0.3.0): names, the CPU boot, and the mends that gloo needs.

Backend `full_dtensor` is used throughout: it is the one that runs with expert parallelism on torch 2.13.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
import torch.distributed as dist
import torch.nn.functional as F

BACKEND = "full_dtensor"
if not torch.cuda.is_available() or os.environ.get("PRLC_TRAINER_DEVICE") == "cpu":
    torch._utils._get_available_device_type = lambda: "cpu"

from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torchtitan.config import (  # noqa: E402
    CompileConfig,
    DebugConfig,
    ParallelismConfig,
    TrainingConfig,
)
from torchtitan.distributed import ParallelDims, full_dtensor  # noqa: E402
from torchtitan.distributed import utils as titan_utils  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.models import qwen3  # noqa: E402
from torchtitan.models.common import CosSinRoPE, Embedding, Linear  # noqa: E402
from torchtitan.models.common.attention import FlexAttention  # noqa: E402
from torchtitan.models.common.moe import GroupedExperts, TokenChoiceTopKRouter  # noqa: E402
from torchtitan.models.common.nn_modules import RMSNorm  # noqa: E402

__all__ = [
    "CosSinRoPE",
    "Embedding",
    "FSDPModule",
    "FlexAttention",
    "Linear",
    "ParallelDims",
    "ParallelismConfig",
    "RMSNorm",
    "TokenChoiceTopKRouter",
    "TrainingConfig",
    "qwen3",
]

logging.getLogger("torchtitan").setLevel(logging.WARNING)
_bf16_experts = GroupedExperts.forward


def start_processes(device: str, deadline: float) -> torch.device:
    """Join the process group of torchrun, or make one of one process. `deadline`: seconds a collective."""
    timeout = timedelta(seconds=deadline)
    backend = "gloo" if device == "cpu" else "nccl"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        if "RANK" in os.environ:
            dist.init_process_group(backend, timeout=timeout)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    titan_utils.set_spmd_backend(BACKEND)
    return torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device("cpu")


def full_precision_experts(enabled: bool) -> None:
    """Grouped experts in the dtype of their weights, without torchtitan's cast to bfloat16."""
    GroupedExperts.forward = _plain_experts if enabled else _bf16_experts


def _plain_experts(self: Any, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
    w1, w2, w3 = (p.to_local() if hasattr(p, "to_local") else p for p in (self.w1_EFD, self.w2_EDF, self.w3_EFD))
    offsets = torch.cumsum(num_tokens_per_expert_E, 0, dtype=torch.int32)

    def grouped(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._grouped_mm(A=a, B_t=w.transpose(-2, -1), offs=offsets)
        return result

    return grouped(F.silu(grouped(x_RD, w1)) * grouped(x_RD, w3), w2)


def complete_config(config: Any, parallelism: Any, training: Any) -> None:
    """Fill in the shardings of a model config."""
    config.update_from_config(config=SimpleNamespace(parallelism=parallelism, training=training, debug=DebugConfig()))


def parallelize(model: Any, dims: Any, parallelism: Any, training: Any, recompute: str) -> Any:
    """FSDP2 and expert parallelism over a model on the meta device. `recompute`: none, selective or full."""
    policy = {"none": None, "selective": SelectiveAC.Config(), "full": FullAC.Config()}[recompute]
    model = qwen3.parallelize_qwen3(
        model,
        parallel_dims=dims,
        training=training,
        parallelism=parallelism,
        compile_config=CompileConfig(),
        ac_config=policy,
        dump_folder="",
    )
    if dist.get_backend() == "gloo":  # gloo lacks the scaled sum that FSDP2 asks for
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    return model


def place_inputs(dims: Any, tokens: torch.Tensor, extra: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """This rank's rows as parts of the global batch."""
    inputs, _, extra = full_dtensor.parallelize_inputs(dims, tokens, tokens, extra)
    return inputs, extra


def reshard(model: Any) -> None:
    """After a pass without backward: norm and lm_head would stay unsharded and miss the next update."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def clip_gradients(model: Any, limit: float, experts_parallel: bool) -> float:
    """Scale gradients to the global norm `limit` (0: no limit); the norm before."""
    bound = limit if limit > 0 else float("inf")
    norm = titan_utils.clip_grad_norm_(list(model.parameters()), bound, foreach=True, ep_enabled=experts_parallel)
    return float(norm)
