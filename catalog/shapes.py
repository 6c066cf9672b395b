"""What each decoder layer of a config is: its token mixer and its feed-forward, in layer order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = Mapping[str, Any]
Mixer = Literal["full", "sliding", "linear", "none"]
FeedForward = Literal["dense", "moe", "none"]

# nemotron_h: one block is one of these, never two; '-' is a dense feed-forward
PATTERN: dict[str, tuple[Mixer, FeedForward]] = {
    "M": ("linear", "none"),
    "*": ("full", "none"),
    "E": ("none", "moe"),
    "-": ("none", "dense"),
}
BLOCK_NAMES = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "moe": "E",
    "mlp": "-",
}
LAYER_TYPES: dict[str, Mixer] = {
    "full_attention": "full",
    "indexed_attention": "full",  # sparse reads, but every key is kept
    "sliding_attention": "sliding",
    "linear_attention": "linear",
}


@dataclass(frozen=True)
class LayerKind:
    """One decoder layer; linear is a Mamba-2 or a gated-delta-net mixer."""

    mixer: Mixer
    feed_forward: FeedForward


def num_experts(c: Config) -> int:
    """Routed experts of a MoE layer; 0 for a dense model."""
    return int(c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 0)


def layer_kinds(c: Config) -> tuple[LayerKind, ...]:
    """The decoder layers of the main model in order. Raises KeyError: missing key, unknown layer type."""
    if c["model_type"] == "nemotron_h":
        blocks = c.get("hybrid_override_pattern") or "".join(BLOCK_NAMES[b] for b in c["layers_block_type"])
        return tuple(LayerKind(*PATTERN[block]) for block in blocks)
    layers = range(int(c["num_hidden_layers"]))
    return tuple(LayerKind(_mixer(c, i), _feed_forward(c, i)) for i in layers)


def moe_layer_ids(c: Config) -> tuple[int, ...]:
    """Places, from 0, of the layers with a router."""
    return tuple(place for place, kind in enumerate(layer_kinds(c)) if kind.feed_forward == "moe")


def count_mixers(c: Config, mixer: Mixer) -> int:
    """Layers with that mixer."""
    return sum(kind.mixer == mixer for kind in layer_kinds(c))


def full_attention_layers(c: Config) -> int:
    """Layers whose KV grows with the whole sequence."""
    return count_mixers(c, "full")


def _mixer(c: Config, index: int) -> Mixer:
    if c.get("layer_types"):
        return LAYER_TYPES[c["layer_types"][index]]
    interval = c.get("full_attention_interval")
    if interval:
        return "full" if (index + 1) % interval == 0 else "linear"
    return "full"


def _feed_forward(c: Config, index: int) -> FeedForward:
    if num_experts(c) == 0:
        return "dense"
    if c.get("mlp_layer_types"):
        return "moe" if c["mlp_layer_types"][index] == "sparse" else "dense"
    if index < int(c.get("first_k_dense_replace") or 0) or index in (c.get("mlp_only_layers") or ()):
        return "dense"
    return "moe" if (index + 1) % int(c.get("decoder_sparse_step") or 1) == 0 else "dense"
