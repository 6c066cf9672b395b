"""Widths and unit sizes of a model's widest layer: what the memory formulas multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.schema.memory import Widths

LINEAR_MIXERS = ("mamba", "linear_attn")


@dataclass(frozen=True)
class LayerShape:
    """Element counts of one token in the widest layer, and the parameters of that layer's FSDP unit."""

    hidden: int
    attention: int  # queries, keys and values, or what a linear mixer projects a token to
    ffn: int  # dense feed-forward, or all shared experts
    routed_hidden: int  # top k x the width that an expert reads
    routed_ffn: int  # top k x the width of an expert
    unit: int  # parameters outside routed experts
    routed: int  # parameters of all routed experts of the layer

    def token_bytes(self, widths: Widths, imbalance: float = 1.0) -> float:
        """Bytes of one token under these coefficients; routed rows times the imbalance."""
        routed = widths.routed_hidden * self.routed_hidden + widths.routed_ffn * self.routed_ffn
        return (
            widths.hidden * self.hidden + widths.attention * self.attention + widths.ffn * self.ffn + routed * imbalance
        )


def kv_width(facts: ModelFacts) -> int:
    """Elements a token that context parallelism gathers in a layer: K and V, or the one latent row."""
    if facts.kv_lora_rank:
        return facts.kv_lora_rank + facts.rope_dim
    return facts.kv_heads * (facts.head_dim + facts.v_head_dim)


def softmax_layers(facts: ModelFacts) -> int:
    """Layers with softmax attention, full or sliding."""
    apart = facts.dense_layers + facts.moe_layers < facts.layers  # a layer is a mixer or a feed-forward
    return facts.attention_layers if apart else facts.layers - facts.linear_layers


def attention_width(facts: ModelFacts) -> int:
    """Elements of queries, keys and values of a token in one layer; the wider kind of a hybrid.

    Latent attention trains with keys and values expanded to all heads. Sparse latent attention trains with queries
    that have absorbed the key projection and an output of latent width, against one latent row a token.
    """
    queries = facts.heads * facts.head_dim
    if facts.attention_kind == "dsa":
        full = queries + facts.heads * (2 * (facts.kv_lora_rank or 0) + facts.rope_dim)
    elif facts.kv_lora_rank:
        full = queries + facts.heads * (facts.head_dim + facts.v_head_dim)
    else:
        full = queries + kv_width(facts)
    if not facts.linear_layers:
        return full
    linear = sum(facts.params.get(name, 0) for name in LINEAR_MIXERS) // facts.linear_layers // facts.hidden
    return max(full, linear)


def expert_matrices(facts: ModelFacts) -> int:
    """Matrices of one routed expert: gate, up and down, or up and down alone."""
    each = facts.moe_layers * facts.num_experts * facts.expert_hidden * facts.moe_intermediate
    return facts.params["routed_experts"] // each if each else 3


def layer_shape(facts: ModelFacts) -> LayerShape:
    """The layer that holds most: with experts where there are any, and the larger kind of mixer."""
    params = facts.params
    full = (params.get("attention", 0) + params.get("indexer", 0)) // max(1, softmax_layers(facts))
    linear = sum(params.get(name, 0) for name in LINEAR_MIXERS) // max(1, facts.linear_layers)
    mixer = max(full, linear)
    if facts.moe_layers:
        inside = ("shared_experts", "shared_expert_gate", "latent_proj", "router", "router_correction_bias")
        forward = sum(params.get(name, 0) for name in inside) // facts.moe_layers
    else:
        forward = params.get("dense_mlp", 0) // max(1, facts.dense_layers)
    apart = facts.dense_layers + facts.moe_layers < facts.layers
    gated = expert_matrices(facts)  # the coefficients count a gate, an up projection and their product
    return LayerShape(
        hidden=facts.hidden,
        attention=attention_width(facts),
        ffn=facts.shared_intermediate * gated // 3 if facts.moe_layers else facts.intermediate,
        routed_hidden=facts.top_k * facts.expert_hidden,
        routed_ffn=facts.top_k * facts.moe_intermediate * gated // 3,
        unit=max(mixer, forward) if apart else mixer + forward,
        routed=params.get("routed_experts", 0) // max(1, facts.moe_layers),
    )
