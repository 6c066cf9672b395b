"""What the trainer of this release can run: one table, read by the compiler's rule and by the trainer itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """A model_type that can be trained. `attention`: its kind; `context_parallel`: whether cp > 1 works."""

    attention: Literal["grouped", "latent", "sinks", "sparse"]
    context_parallel: bool


TRAINABLE: Mapping[str, Family] = {
    "qwen3": Family("grouped", True),
    "llama": Family("grouped", True),
    "qwen3_moe": Family("grouped", True),
    "glm4_moe": Family("grouped", True),
    "minimax_m2": Family("grouped", True),
    "deepseek_v3": Family("latent", True),
    "kimi_k2": Family("latent", True),
    "glm4_moe_lite": Family("latent", True),
    "gpt_oss": Family("sinks", True),
    "deepseek_v32": Family("sparse", True),
    "glm_moe_dsa": Family("sparse", True),
}
ROTARY = ("default", "linear", "llama3", "yarn")


def obstacles(config: Mapping[str, Any], *, cp: int, precision: str) -> tuple[str, ...]:
    """Why the trainer cannot run this: one phrase each, empty where it can. `config`: of a Hugging Face config.json."""
    kind = config.get("model_type")
    family = TRAINABLE.get(str(kind))
    found = []
    if family is None:
        found.append(f"model_type {kind}")
    else:
        found.extend(_unknown_parts(config))
        if cp > 1:
            found.extend(_context_parallel(config, family, cp))
    if precision == "fp8":
        found.append("fp8 training")
    return tuple(found)


def _unknown_parts(config: Mapping[str, Any]) -> list[str]:
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rotary = scaling.get("rope_type") or scaling.get("type") or "default"
    quantization = config.get("quantization_config") or {}
    method, blocks = quantization.get("quant_method"), quantization.get("weight_block_size")
    return [
        text
        for present, text in (
            (rotary not in ROTARY, f"rotary embeddings of type {rotary}"),
            (config.get("use_sliding_window"), "use_sliding_window"),
            (config.get("mlp_bias"), "mlp_bias"),
            (config.get("hidden_act", "silu") != "silu", f"activation {config.get('hidden_act')}"),
            (method not in (None, "fp8"), f"a checkpoint quantized with {method}"),
            (method == "fp8" and list(blocks or ()) != [128, 128], "a checkpoint in fp8 without blocks of 128 x 128"),
        )
        if present
    ]


def _context_parallel(config: Mapping[str, Any], family: Family, cp: int) -> list[str]:
    """Heads are exchanged for tokens, so cp must divide the query heads, and fit the key heads evenly.

    Sparse attention gathers latents instead, whatever the heads.
    """
    if not family.context_parallel:
        return [f"context parallelism (cp {cp}) for {family.attention} attention"]
    if family.attention == "sparse":
        return []
    heads = int(config["num_attention_heads"])
    keys = heads if family.attention == "latent" else int(config.get("num_key_value_heads") or heads)
    if heads % cp or (keys % cp and cp % keys):
        return [f"context parallelism (cp {cp}) over {heads} query and {keys} key heads"]
    return []
