"""What the rest of the compiler needs to know of a model, in one flat record of plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prlc.catalog import params
from prlc.catalog.errors import CatalogError
from prlc.catalog.kv import state_bytes
from prlc.catalog.shapes import Config, count_mixers, full_attention_layers, layer_kinds, num_experts
from prlc.schema.model import AttentionKind, Model


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Shapes and parameter counts. A count that the model does not have is 0, a rank that it lacks None."""

    name: str
    layers: int  # all decoder layers of the main model, MTP layers apart
    dense_layers: int  # layers with a dense feed-forward
    moe_layers: int  # layers with a router
    attention_layers: int  # layers whose KV grows with the sequence at full length
    num_experts: int
    top_k: int
    hidden: int
    heads: int
    kv_heads: int  # 1 for latent attention: one latent row, whatever the head count
    head_dim: int  # width of a query/key head (nope + rope for latent attention)
    v_head_dim: int
    q_lora_rank: int | None
    kv_lora_rank: int | None
    rope_dim: int  # rotated part of a query/key head
    intermediate: int  # width of a dense feed-forward, 0 where no layer has one
    moe_intermediate: int  # width of one routed expert
    shared_intermediate: int  # width of all shared experts of a layer together
    expert_hidden: int  # width that a routed expert reads: hidden, or less where experts are latent
    vocab: int
    tied: bool
    attention_kind: AttentionKind
    sliding_window: int | None
    index_topk: int | None
    index_heads: int
    index_head_dim: int
    indexer_layers: int
    linear_layers: int  # Mamba-2 or gated-delta-net layers
    mamba_heads: int  # state heads of a Mamba-2 or gated-delta-net layer
    mamba_groups: int  # B/C groups of Mamba-2; key heads of gated delta net
    state_bytes: int  # one sequence's recurrent state in all linear layers, as vLLM keeps it
    params: Mapping[str, int]  # component -> parameters of the main model
    mtp_params: int
    total_params: int  # main model, MTP and vision apart
    active_params: int  # of total_params, those that one token passes through, embedding and head included
    max_position: int


def facts(model: Model) -> ModelFacts:
    """Flatten `model`. Raises CatalogError: a model_type without a formula, a config without a needed key."""
    try:
        return _facts(model, params.config_of(model))
    except KeyError as error:
        raise CatalogError(f"{model.name}: the config has no {error}") from error


def _facts(model: Model, c: Config) -> ModelFacts:
    main, mtp = params.main_params(model), params.mtp_params(model)
    kinds = layer_kinds(c)
    experts = num_experts(c)
    top_k = int(c["num_experts_per_tok"]) if experts else 0
    latent = c.get("kv_lora_rank")
    heads, hidden = int(c["num_attention_heads"]), int(c["hidden_size"])
    nope_and_rope = ("qk_nope_head_dim", "qk_rope_head_dim")
    head = sum(int(c[key]) for key in nope_and_rope) if latent else int(c.get("head_dim") or hidden // heads)
    moe_layers = sum(kind.feed_forward == "moe" for kind in kinds)
    dense_layers = sum(kind.feed_forward == "dense" for kind in kinds)
    linear = count_mixers(c, "linear")
    routed = main.get("routed_experts", 0)
    own_width = c.get("moe_intermediate_size") or c.get("intermediate_size") or 0
    return ModelFacts(
        name=model.name,
        layers=len(kinds),
        dense_layers=dense_layers,
        moe_layers=moe_layers,
        attention_layers=full_attention_layers(c),
        num_experts=experts,
        top_k=top_k,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if latent else int(c["num_key_value_heads"]),
        head_dim=head,
        v_head_dim=int(c["v_head_dim"]) if latent else head,
        q_lora_rank=c.get("q_lora_rank"),
        kv_lora_rank=latent,
        rope_dim=_rope_dim(c, head),
        intermediate=int(c["intermediate_size"]) if dense_layers else 0,
        moe_intermediate=int(own_width) if experts else 0,
        shared_intermediate=params.shared_width(c) if experts else 0,
        expert_hidden=int(c.get("moe_latent_size") or hidden) if experts else 0,
        vocab=model.vocab_size,
        tied=model.tie_word_embeddings,
        attention_kind=model.attention_kind,
        sliding_window=c.get("sliding_window") if model.attention_kind == "sliding" else None,
        index_topk=c.get("index_topk"),
        index_heads=int(c.get("index_n_heads") or 0),
        index_head_dim=int(c.get("index_head_dim") or 0),
        indexer_layers=params.indexer_layers(c),
        linear_layers=linear,
        mamba_heads=int(c.get("mamba_num_heads") or c.get("linear_num_value_heads") or 0) if linear else 0,
        mamba_groups=int(c.get("n_groups") or c.get("linear_num_key_heads") or 0) if linear else 0,
        state_bytes=state_bytes(model),
        params=main,
        mtp_params=sum(mtp.values()),
        total_params=sum(main.values()),
        active_params=sum(main.values()) - routed + (routed * top_k // experts if experts else 0),
        max_position=model.max_position_embeddings,
    )


def _rope_dim(c: Config, head: int) -> int:
    """Width of the rotated part of a query/key head; Nemotron's attention has no rotary embedding."""
    if c["model_type"] == "nemotron_h":
        return 0
    explicit = c.get("qk_rope_head_dim") or c.get("rotary_dim")
    if explicit:
        return int(explicit)
    nested = (c.get("rope_parameters") or {}).get("partial_rotary_factor")
    return int(head * (c.get("partial_rotary_factor") or nested or 1.0))
