"""Families with multi-head latent attention: DeepSeek-V3 and R1, Kimi-K2, GLM-4.7-Flash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import PackedAttention
from prlc.runtime.trainer.families import names
from prlc.runtime.trainer.families.decoder import decoder, replicated, sequence_split
from prlc.runtime.trainer.families.grouped import corrected_block, eps
from prlc.runtime.trainer.families.layers import linear, norm
from prlc.runtime.trainer.families.rotary import parameters, rotary, yarn_scale

LATENT_EPS = 1e-6  # transformers gives the norms of both latents this eps, whatever rms_norm_eps says


class LatentAttention(titan.LatentAttention):
    """torchtitan's multi-head latent attention with the scale of the scores given."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.LatentAttention.Config):
        """`scale` multiplies the scores."""

        scale: float

        def set_layer_sharding(self, layer: Any, enable_sp: bool, enable_ep: bool) -> None:
            """Sharding of the block around this attention."""
            titan.set_latent_layer_sharding(layer, enable_sp=enable_sp, enable_ep=enable_ep)
            for projection in (self.wkv_a, self.wq_a):
                if projection is not None:
                    projection.sharding_config = replicated("weight", "bias")
            sequence_split(self)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.softmax_scale = config.scale


def score_scale(hf: dict[str, Any]) -> float:
    """1 / sqrt(head), times YaRN's scale squared where mscale_all_dim is set (DeepSeek-V3's modeling code)."""
    scaling = parameters(hf)
    scale = float((hf["qk_nope_head_dim"] + hf["qk_rope_head_dim"]) ** -0.5)
    if scaling["rope_type"] != "default" and scaling.get("mscale_all_dim"):
        scale *= yarn_scale(float(scaling["factor"]), float(scaling["mscale_all_dim"])) ** 2
    return scale


def latent_fields(hf: dict[str, Any], length: int) -> dict[str, Any]:
    """Fields of a latent attention's config."""
    size, heads, rank, bias = hf["hidden_size"], hf["num_attention_heads"], hf["kv_lora_rank"], hf.get("attention_bias")
    nope, rope, value = hf["qk_nope_head_dim"], hf["qk_rope_head_dim"], hf["v_head_dim"]
    low = hf.get("q_lora_rank") or 0
    query = (
        {"wq_a": linear(size, low, bool(bias)), "wq_b": linear(low, heads * (nope + rope))}
        if low
        else {"wq": linear(size, heads * (nope + rope))}
    )
    return {
        "n_heads": heads,
        "dim": size,
        **query,
        "wkv_a": linear(size, rank + rope, bool(bias)),
        "wkv_b": linear(rank, heads * (nope + value)),
        "wo": linear(heads * value, size, bool(bias)),
        "q_lora_rank": low,
        "kv_lora_rank": rank,
        "q_norm": norm(low or 1, LATENT_EPS),
        "kv_norm": norm(rank, LATENT_EPS),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
        "rope": rotary(hf, rope, length, interleaved=bool(hf.get("rope_interleave", True))),
        "inner_attention": PackedAttention.Config(),
        "scale": score_scale(hf),
    }


def latent(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """DeepSeek-V3 and its kin."""
    layers = [
        corrected_block(hf, index, LatentAttention.Config(**latent_fields(hf, length)))
        for index in range(hf["num_hidden_layers"])
    ]
    config = decoder(hf, layers, eps(hf))
    return config, names.Names(names.ROOT | names.NORMS | names.LATENT | names.DENSE | names.MIXTURE)
