"""A trainable model from a Hugging Face folder: torchtitan's Qwen3 on the mesh."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from prlc.runtime.replay.router import routers, swap_routers
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import DenseMaskAttention
from prlc.runtime.trainer.head import swap_head
from prlc.schema.trainer import TrainerConfig

TRAINABLE = ("qwen3_moe", "qwen3")


class ModelError(ValueError):
    """A model or a layout that this trainer cannot train."""


@dataclass
class Trainable:
    """A model on its mesh, with what is needed to feed it and to name its weights."""

    module: Any
    config: Any
    adapter: Any
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


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a Hugging Face folder. Raises ModelError where it is missing."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ModelError(f"no config.json in {folder}")
    document: dict[str, Any] = json.loads(path.read_text())
    if "num_local_experts" in document:  # how transformers 5 writes it
        document.setdefault("num_experts", document["num_local_experts"])
    return document


def model_config(hf: dict[str, Any], length: int) -> Any:
    """torchtitan's config for a config.json; `length`: longest row in tokens. Raises ModelError."""
    kind = hf.get("model_type")
    if kind not in TRAINABLE:
        raise ModelError(f"model_type {kind!r} cannot be trained here; trainable: {', '.join(TRAINABLE)}")
    rope = hf.get("rope_parameters") or {}
    scaling = hf.get("rope_scaling") or {}
    if {rope.get("rope_type", "default"), scaling.get("rope_type", scaling.get("type", "default"))} != {"default"}:
        raise ModelError(f"scaled rotary embeddings cannot be trained here: {rope or scaling}")
    if hf.get("attention_bias") or hf.get("use_sliding_window"):
        raise ModelError("attention with biases or a sliding window cannot be trained here")
    if hf.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {hf['hidden_act']!r} cannot be trained here")
    dim, count, heads = hf["hidden_size"], hf["num_hidden_layers"], hf["num_attention_heads"]
    head = hf.get("head_dim") or dim // heads
    rotary = titan.CosSinRoPE.Config(
        dim=head, max_seq_len=length, theta=float(rope.get("rope_theta", hf.get("rope_theta", 10000.0)))
    )
    common = {
        "n_layers": count,
        "dim": dim,
        "n_heads": heads,
        "n_kv_heads": hf.get("num_key_value_heads", heads),
        "head_dim": head,
        "fuse_qkv": False,
        "attn_backend": "flex",
        "rope": rotary,
    }
    dense = titan.qwen3._build_qwen3_layers(hidden_dim=hf["intermediate_size"], **common)
    layers = dense
    if kind == "qwen3_moe":
        moe = titan.qwen3._build_qwen3_moe_layers(
            moe_hidden_dim=hf["moe_intermediate_size"],
            num_experts=hf["num_experts"],
            top_k=hf["num_experts_per_tok"],
            moe_comm_backend="standard",
            **common,
        )
        only_dense, every = set(hf.get("mlp_only_layers") or []), hf.get("decoder_sparse_step", 1)
        layers = [moe[i] if i not in only_dense and (i + 1) % every == 0 else dense[i] for i in range(count)]
    for layer in layers:
        layer.attention.inner_attention = DenseMaskAttention.Config()
        if layer.moe is not None:
            layer.moe.router.route_norm = bool(hf.get("norm_topk_prob", False))
    tied = bool(hf.get("tie_word_embeddings", False))
    init = titan.qwen3._EMBEDDING_SKIP_INIT if tied else titan.qwen3._EMBEDDING_INIT
    vocabulary = hf["vocab_size"]
    config = titan.qwen3.Qwen3Model.Config(
        vocab_size=vocabulary,
        dim=dim,
        norm=titan.qwen3._qwen3_norm(dim),
        enable_weight_tying=tied,
        tok_embeddings=titan.Embedding.Config(num_embeddings=vocabulary, embedding_dim=dim, param_init=init),
        lm_head=titan.Linear.Config(in_features=dim, out_features=vocabulary, param_init=titan.qwen3._LINEAR_INIT),
        layers=layers,
    )
    for _name, norm, _parent, _attribute in config.traverse(titan.RMSNorm.Config):
        norm.eps = float(hf.get("rms_norm_eps", 1e-6))
    return config


def build_model(settings: TrainerConfig, folder: Path, device: torch.device) -> Trainable:
    """The model on its mesh with random weights. Raises ModelError on what cannot be trained."""
    parallel, world = settings.parallel, dist.get_world_size()
    if parallel.cp != 1:
        raise ModelError("context parallelism is not offered by this trainer: set parallel.cp to 1")
    if settings.precision == "fp8":
        raise ModelError("fp8 training is not offered by this trainer: set precision to bf16 or fp32")
    wanted = parallel.dp_replicate * parallel.dp_shard
    if wanted != world:
        raise ModelError(f"the mesh needs {wanted} processes, {world} were started")
    hf = read_config(folder)
    if hf.get("model_type") != settings.model_type:
        raise ModelError(f"{folder} holds {hf.get('model_type')!r}, the config says {settings.model_type!r}")
    if parallel.ep > 1 and hf.get("num_experts", 0) % parallel.ep:
        raise ModelError(f"{hf.get('num_experts', 0)} experts cannot be spread over {parallel.ep} ranks")
    config = model_config(hf, max(settings.seq_len, settings.micro_batch_tokens))
    swap_routers(config)
    swap_head(config)
    precision = {"fp32": "float32", "bf16": "bfloat16"}[settings.precision]
    titan.full_precision_experts(settings.precision == "fp32")
    parallelism = titan.ParallelismConfig(
        data_parallel_replicate_degree=parallel.dp_replicate,
        data_parallel_shard_degree=parallel.dp_shard,
        expert_parallel_degree=parallel.ep,
        spmd_backend=titan.BACKEND,
    )
    training = titan.TrainingConfig(
        seq_len=settings.seq_len,
        mixed_precision_param=precision,
        disable_cuda_graphs=True,
        enable_cpu_offload=settings.optimizer.offload == "cpu" and settings.device == "cuda",
    )
    dims = titan.ParallelDims.from_config(parallelism, world)
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
    adapter = titan.qwen3.Qwen3StateDictAdapter(config, None)
    return Trainable(
        module,
        config,
        adapter,
        dims,
        device,
        hf["vocab_size"],
        len(routers(module)),
        hf.get("num_experts", 0),
        hf.get("num_experts_per_tok", 0),
    )
