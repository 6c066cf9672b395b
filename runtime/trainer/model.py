"""A trainable model from a Hugging Face folder, on torchtitan's mesh."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from prlc.runtime.replay.router import routers, swap_routers
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.families import grouped, latent, sinks, sparse
from prlc.runtime.trainer.families.names import Names
from prlc.runtime.trainer.head import swap_head
from prlc.schema.trainable import TRAINABLE, obstacles
from prlc.schema.trainer import TrainerConfig

FAMILIES: dict[str, Callable[[dict[str, Any], int], tuple[Any, Names]]] = {
    "qwen3": grouped.dense,
    "llama": grouped.dense,
    "qwen3_moe": grouped.qwen3_moe,
    "glm4_moe": grouped.glm4_moe,
    "minimax_m2": grouped.minimax_m2,
    "deepseek_v3": latent.latent,
    "kimi_k2": latent.latent,
    "glm4_moe_lite": latent.latent,
    "gpt_oss": sinks.gpt_oss,
    "deepseek_v32": sparse.sparse,
    "glm_moe_dsa": sparse.sparse,
}


class ModelError(ValueError):
    """A model or a layout that this trainer cannot train."""


@dataclass
class Trainable:
    """A model on its mesh, with what is needed to feed it and to name its weights."""

    module: Any
    config: Any
    adapter: Names
    dims: Any
    device: torch.device
    vocabulary: int
    routers: int
    experts: int
    top_k: int

    @property
    def data_rank(self) -> tuple[int, int]:
        """(rank, size) of this process among those that get different rows."""
        mesh = self.dims.get_optional_mesh("batch")
        return (mesh.get_local_rank(), mesh.size()) if mesh is not None else (0, 1)

    @property
    def sequence_rank(self) -> tuple[int, int]:
        """(rank, size) of this process among those that share its rows and compute the same loss of them."""
        mesh = self.dims.get_optional_mesh("cp")
        return (mesh.get_local_rank(), mesh.size()) if mesh is not None else (0, 1)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a Hugging Face folder. Raises ModelError where it is missing."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ModelError(f"no config.json in {folder}")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def build_model(settings: TrainerConfig, folder: Path, device: torch.device) -> Trainable:
    """The model on its mesh with random weights. Raises ModelError on what cannot be trained."""
    parallel, world = settings.parallel, dist.get_world_size()
    wanted = parallel.dp_replicate * parallel.dp_shard * parallel.cp
    if wanted != world:
        raise ModelError(f"the mesh needs {wanted} processes, {world} were started")
    hf = read_config(folder)
    if hf.get("model_type") != settings.model_type:
        raise ModelError(f"{folder} holds {hf.get('model_type')!r}, the config says {settings.model_type!r}")
    found = obstacles(hf, cp=parallel.cp, precision=settings.precision)
    if found:
        raise ModelError(f"this trainer does not run {' or '.join(found)}; it trains {', '.join(TRAINABLE)}")
    experts = grouped.expert_count(hf)
    if parallel.ep > 1 and (experts == 0 or experts % parallel.ep):
        raise ModelError(f"{experts} experts cannot be spread over {parallel.ep} ranks")
    config, names = FAMILIES[hf["model_type"]](hf, max(settings.seq_len, settings.micro_batch_tokens))
    swap_routers(config)
    swap_head(config)
    parallelism = titan.ParallelismConfig(
        data_parallel_replicate_degree=parallel.dp_replicate,
        data_parallel_shard_degree=parallel.dp_shard,
        context_parallel_degree=parallel.cp,
        expert_parallel_degree=parallel.ep,
        spmd_backend=titan.BACKEND,
    )
    training = titan.TrainingConfig(
        seq_len=settings.seq_len,
        mixed_precision_param={"fp32": "float32", "bf16": "bfloat16"}[settings.precision],
        disable_cuda_graphs=True,
        enable_cpu_offload=settings.optimizer.offload == "cpu" and settings.device == "cuda",
    )
    dims = titan.mesh(parallel.dp_replicate, parallel.dp_shard, parallel.cp, parallel.ep)
    titan.complete_config(config, parallelism, training)
    with torch.device("meta"):
        module = config.build()
    module = titan.parallelize(module, dims, parallelism, training, settings.activation_checkpoint)
    home = torch.device("cpu") if training.enable_cpu_offload else device
    module.to_empty(device=home)
    torch.manual_seed(settings.seed)
    with torch.no_grad():
        module.init_weights(buffer_device=device if training.enable_cpu_offload else None)
    module.train()
    return Trainable(
        module,
        config,
        names,
        dims,
        device,
        hf["vocab_size"],
        len(routers(module)),
        experts,
        hf.get("num_experts_per_tok", 0) if experts else 0,
    )
