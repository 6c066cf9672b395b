"""A tiny random checkpoint of each family, made by transformers; nothing here asserts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY, EXPERTS, TOP_K = 64, 16, 4
# dp_replicate, dp_shard, cp, ep (1 for a dense model); the first keeps activations, the others recompute them all
LAYOUTS = [(1, 1, 1, 1), (1, 2, 1, 2), (1, 2, 2, 2)]
RARER = [(1, 4, 1, 4), (2, 2, 1, 2), (1, 1, 4, 2)]  # for one family of a kind
REPRESENTATIVES = ("qwen3_moe", "glm_moe_dsa")
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "dtype": "float32",
}
CORRECTED = {
    "moe_intermediate_size": 32,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.7,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "num_nextn_predict_layers": 0,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
# Many index heads: with few, whole heads of ReLU are zero, scores tie, and which key wins is anyone's choice.
INDEXED = {"index_topk": 6, "index_head_dim": 16, "index_n_heads": 16}
# model_type: (class of transformers, config, layers with experts)
TINY: dict[str, tuple[str, dict[str, Any], int]] = {
    "qwen3": (
        "Qwen3",
        {**COMMON, "head_dim": 32, "num_hidden_layers": 2, "tie_word_embeddings": True, "rope_parameters": PLAIN},
        0,
    ),
    "llama": ("Llama", {**COMMON, "head_dim": 16, "num_hidden_layers": 2, "rope_parameters": LLAMA3}, 0),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            **COMMON,
            "head_dim": 32,
            "num_hidden_layers": 3,
            "mlp_only_layers": [1],
            "moe_intermediate_size": 32,
            "num_experts": EXPERTS,
            "num_experts_per_tok": TOP_K,
            "norm_topk_prob": False,
            "attention_bias": True,
            "rope_parameters": {**YARN, "attention_factor": 1.1},
        },
        2,
    ),
    "glm4_moe": (
        "Glm4Moe",
        {
            **COMMON,
            **CORRECTED,
            "head_dim": 32,
            "num_hidden_layers": 3,
            "attention_bias": True,
            "use_qk_norm": True,
            "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5},
        },
        2,
    ),
    "minimax_m2": (
        "MiniMaxM2",
        {
            **COMMON,
            "head_dim": 32,
            "intermediate_size": 32,
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": TOP_K,
            "num_hidden_layers": 2,
            "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5},
        },
        2,
    ),
    "deepseek_v3": (
        "DeepseekV3",
        {
            **COMMON,
            **CORRECTED,
            **LATENT,
            "num_hidden_layers": 3,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
        },
        2,
    ),
    "glm4_moe_lite": (
        "Glm4MoeLite",
        {**COMMON, **CORRECTED, **LATENT, "q_lora_rank": None, "num_hidden_layers": 3, "rope_parameters": PLAIN},
        2,
    ),
    "deepseek_v32": (
        "DeepseekV32",
        {
            **COMMON,
            **CORRECTED,
            **LATENT,
            **INDEXED,
            "num_hidden_layers": 2,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
        },
        1,
    ),
    "glm_moe_dsa": (
        "GlmMoeDsa",
        {
            **COMMON,
            **CORRECTED,
            **LATENT,
            **INDEXED,
            "num_hidden_layers": 4,
            "rope_parameters": PLAIN,
            "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
            "indexer_types": ["full", "shared", "full", "shared"],
        },
        2,
    ),
    "gpt_oss": (
        "GptOss",
        {
            **COMMON,
            "head_dim": 16,
            "intermediate_size": 32,
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": TOP_K,
            "num_hidden_layers": 2,
            "sliding_window": 6,
            "rope_parameters": {**YARN, "rope_theta": 150000.0, "truncate": False},
        },
        2,
    ),
}


def label(layout: tuple[int, int, int, int]) -> str:
    """Name of a layout in file names."""
    return "_".join(str(degree) for degree in layout)


def layouts_of(kind: str) -> list[tuple[int, int, int, int]]:
    """Layouts that a family is tried in."""
    tried = [*LAYOUTS, *(RARER if kind in REPRESENTATIVES else [])]
    return [layout if TINY[kind][2] else (*layout[:3], 1) for layout in tried]


def load(folder: Path) -> Any:
    """The model of a folder in transformers, float32, plain attention."""
    import torch
    import transformers

    kind = json.loads((folder / "config.json").read_text())["model_type"]
    cls = getattr(transformers, TINY[kind][0] + "ForCausalLM")
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def write(kind: str, folder: Path) -> None:
    """A random checkpoint whose every weight matters: biases and sinks are not zero, norms not one."""
    import torch
    import transformers

    name, config, _ = TINY[kind]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**config)).float()
        for label, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if label.endswith("bias"):
                tensor.normal_(std=0.1)
            elif "norm" in label:
                tensor.add_(0.1 * torch.randn_like(tensor))
            elif "sinks" in label:
                tensor.normal_(std=0.5)
            elif "inv_freq" not in label:
                tensor.normal_(std=0.08)
        model.save_pretrained(folder)


def write_blocks(source: Path, folder: Path) -> dict[str, Any]:
    """The checkpoint with linear weights in fp8 blocks of 128 x 128, as DeepSeek-V3 has them; the values meant."""
    import torch
    from safetensors.torch import load_file, save_file

    stored, meant = {}, {}
    for name, weight in load_file(source / "model.safetensors").items():
        stored[name] = meant[name] = weight
        if name.endswith("_proj.weight"):
            assert max(weight.shape) <= 128
            scale = (weight.abs().max() / 448.0).reshape(1, 1)
            stored[name] = (weight / scale).to(torch.float8_e4m3fn)
            stored[name.replace(".weight", ".weight_scale_inv")] = scale
            meant[name] = stored[name].float() * scale
    folder.mkdir()
    save_file(stored, folder / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(stored, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    return meant


def force_routing(model: Any, routed: Any) -> None:
    """Make a transformers model send tokens to these experts: [tokens, layers with experts, top_k].

    The weights are what each family's own router makes of the scores of those experts.
    """
    import torch

    kind = model.config.model_type
    gates = [module for name, module in model.named_modules() if name.endswith(("mlp.gate", "mlp.router"))]
    gates = [gate for gate in gates if hasattr(gate, "top_k")]
    assert len(gates) == routed.shape[1]

    for index, gate in enumerate(gates):

        def forward(hidden: Any, bias: Any = None, gate: Any = gate, ids: Any = routed[:, index]) -> Any:
            hidden = hidden.reshape(-1, hidden.size(-1))
            logits = torch.nn.functional.linear(hidden, gate.weight, getattr(gate, "bias", None))
            if kind == "gpt_oss":
                return logits, logits.gather(1, ids).softmax(-1), ids
            if kind == "qwen3_moe":
                return logits, logits.softmax(-1).gather(1, ids), ids
            weights = logits.sigmoid().gather(1, ids)
            weights = weights / weights.sum(-1, keepdim=True) * getattr(gate, "routed_scaling_factor", 1.0)
            return logits, weights, ids

        gate.forward = forward
