"""The one module that imports torchtitan (pinned 0.3.0): names, the CPU boot, and the mends that gloo needs.

Backend `full_dtensor` is used throughout: it is the one that runs with expert parallelism on torch 2.13.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
import torch.distributed as dist

BACKEND = "full_dtensor"
if not torch.cuda.is_available() or os.environ.get("PRLC_TRAINER_DEVICE") == "cpu":
    torch._utils._get_available_device_type = lambda: "cpu"

from torch.distributed._functional_collectives import (  # noqa: E402
    AsyncCollectiveTensor,
    all_gather_tensor_autograd,
    all_to_all_single_autograd,
    wait_tensor,
)
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
from torchtitan.models.common import CosSinRoPE, Decoder, Embedding, FeedForward, Linear  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, GQAttention, QKVLinear  # noqa: E402
from torchtitan.models.common.decoder_sharding import (  # noqa: E402
    dense_activation_placement,
    dense_param_placement,
    rowwise_config,
    set_decoder_sharding_config,
)
from torchtitan.models.common.moe import (  # noqa: E402
    GroupedExperts,
    MoE,
    RoutedExperts,
    TokenChoiceTopKRouter,
)
from torchtitan.models.common.nn_modules import LayerNorm, RMSNorm  # noqa: E402
from torchtitan.models.common.param_init import skip_param_init  # noqa: E402
from torchtitan.models.common.rope import _yarn_inv_freq as yarn_frequencies  # noqa: E402
from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher  # noqa: E402
from torchtitan.models.deepseek_v3.model import Attention as LatentAttention  # noqa: E402
from torchtitan.models.deepseek_v3.sharding import (  # noqa: E402
    _set_deepseek_v3_layer_sharding as set_latent_layer_sharding,
)
from torchtitan.models.gpt_oss.model import Attention as SinkAttention  # noqa: E402
from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts, swiglu  # noqa: E402
from torchtitan.models.gpt_oss.sharding import (  # noqa: E402
    _set_gpt_oss_layer_sharding as set_sink_layer_sharding,
)
from torchtitan.models.qwen3.model import Qwen3TransformerBlock as Block  # noqa: E402
from torchtitan.models.qwen3.sharding import (  # noqa: E402
    _set_qwen3_layer_sharding as set_grouped_layer_sharding,
)
from torchtitan.protocols.module import Module  # noqa: E402
from torchtitan.protocols.sharding import LocalMapConfig, ShardingConfig  # noqa: E402

__all__ = [
    "AllToAllTokenDispatcher",
    "Block",
    "CosSinRoPE",
    "Decoder",
    "Embedding",
    "FSDPModule",
    "FeedForward",
    "FlexAttention",
    "GQAttention",
    "GptOssGroupedExperts",
    "GroupedExperts",
    "LatentAttention",
    "LayerNorm",
    "Linear",
    "LocalMapConfig",
    "MoE",
    "Module",
    "ParallelDims",
    "ParallelismConfig",
    "QKVLinear",
    "RMSNorm",
    "RoutedExperts",
    "ShardingConfig",
    "SinkAttention",
    "TokenChoiceTopKRouter",
    "TrainingConfig",
    "dense_activation_placement",
    "dense_param_placement",
    "rowwise_config",
    "set_decoder_sharding_config",
    "set_grouped_layer_sharding",
    "set_latent_layer_sharding",
    "set_sink_layer_sharding",
    "skip_param_init",
    "swiglu",
    "yarn_frequencies",
]

logging.getLogger("torchtitan").setLevel(logging.WARNING)


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


def exchange(parts: torch.Tensor, mesh: Any) -> torch.Tensor:
    """All-to-all over a mesh axis: part i of the first dimension goes to rank i; gradients go the same way back."""
    result: torch.Tensor = all_to_all_single_autograd(parts.contiguous(), None, None, mesh)
    return wait_tensor(result) if isinstance(result, AsyncCollectiveTensor) else result


def gather_keys(part: torch.Tensor, cp: Any) -> torch.Tensor:
    """Whole rows [B, L, D] of parts [B, L / cp, D], for ranks that go on differently: gradients of a part are added."""
    if cp is None:
        return part
    result: torch.Tensor = all_gather_tensor_autograd(part.contiguous(), 1, cp)
    return wait_tensor(result) if isinstance(result, AsyncCollectiveTensor) else result


def mesh(replicate: int, shard: int, cp: int, ep: int) -> Any:
    """The mesh of a layout; one object for equal layouts of a process, since DTensor's caches hand out the first."""
    return _mesh(dist.group.WORLD, replicate, shard, cp, ep)


@lru_cache(maxsize=8)
def _mesh(world: Any, replicate: int, shard: int, cp: int, ep: int) -> Any:
    size = dist.get_world_size(world)
    return ParallelDims(
        dp_replicate=replicate, dp_shard=shard, cp=cp, tp=1, pp=1, ep=ep, world_size=size, spmd_backend=BACKEND
    )


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
    """This rank's rows as parts of the global batch: tokens, positions and others [B, L] that a model takes.

    Under context parallelism this rank keeps its part of L. `attention_masks` speak of whole rows and stay whole.
    """
    whole = {name: value for name, value in extra.items() if name == "attention_masks"}
    split = {name: value for name, value in extra.items() if name not in whole}
    cp = dims.get_optional_mesh("cp")
    if cp is not None:
        tokens, split = sequence_part(tokens, cp), {name: sequence_part(value, cp) for name, value in split.items()}
    inputs, _, split = full_dtensor.parallelize_inputs(dims, tokens, tokens, split)
    return inputs, split | whole


def sequence_part(whole: torch.Tensor, cp: Any, fill: int = 0) -> torch.Tensor:
    """This rank's part [B, ceil(L / cp), ...] of rows [B, L, ...]; the last part is padded."""
    width = -(-whole.size(1) // cp.size())
    low = cp.get_local_rank() * width
    part = whole[:, low : low + width]
    if part.size(1) < width:
        padding = part.new_full((part.size(0), width - part.size(1), *part.shape[2:]), fill)
        part = torch.cat([part, padding], 1)
    return part.contiguous()


def gather_sequence(part: torch.Tensor, cp: Any) -> torch.Tensor:
    """Whole rows [B, L, ...] of parts [B, L / cp, ...]. The gradient of a part is this rank's own, not a sum:
    all ranks that share the rows compute the same loss of them."""
    result: torch.Tensor = _Gathered.apply(part, cp)
    return result


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, mesh: Any) -> torch.Tensor:
        ctx.part = mesh.get_local_rank() * part.size(1), part.size(1)
        pieces = [torch.empty_like(part) for _ in range(mesh.size())]
        dist.all_gather(pieces, part.contiguous(), group=mesh.get_group())
        return torch.cat(pieces, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].narrow(1, *ctx.part), None


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
