"""Parameters per component, from the architecture by formula: one function a family.

Components: embedding, lm_head, norms, attention, linear_attn, mamba, indexer, dense_mlp, routed_experts,
shared_experts, shared_expert_gate, latent_proj, router, router_correction_bias (a buffer in transformers, a
tensor in checkpoints) and, in MTP layers, mtp_proj. Every count equals the module tree of transformers 5.24
(tests/catalog).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from prlc.catalog.errors import CatalogError
from prlc.catalog.shapes import Config, LayerKind, layer_kinds, num_experts
from prlc.schema.model import Model

Counts = Counter[str]


def main_params(model: Model) -> dict[str, int]:
    """Component -> parameters of the main model, zeros left out. Raises CatalogError."""
    c = config_of(model)
    layer = _family(c)
    try:
        counts: Counts = Counter(embedding=model.vocab_size * c["hidden_size"], norms=c["hidden_size"])
        if not model.tie_word_embeddings:
            counts["lm_head"] = model.vocab_size * c["hidden_size"]
        for kind in layer_kinds(c):
            counts.update(layer(c, kind))
        if "index_topk" in c:
            counts["indexer"] = indexer_layers(c) * _indexer(c)
    except KeyError as error:
        raise CatalogError(f"{model.name}: the config has no usable {error}") from error
    return {name: count for name, count in counts.items() if count}


def mtp_params(model: Model) -> dict[str, int]:
    """Component -> parameters of all multi-token-prediction layers, without shared embedding and head."""
    c = config_of(model)
    number = int(model.mtp.get("num_nextn_predict_layers") or 0)
    if number == 0:
        return {}
    layer, hidden = _family(c), int(c["hidden_size"])
    # one full decoder layer; [embedding, hidden] -> hidden; two input norms and a final one
    one: Counts = Counter(mtp_proj=2 * hidden * hidden, norms=3 * hidden)
    if c["model_type"] == "nemotron_h":  # there a decoder layer is two blocks, "*E"
        one.update(layer(c, LayerKind("full", "none")))
        one.update(layer(c, LayerKind("none", "moe")))
    else:
        one.update(layer(c, LayerKind("full", "moe" if num_experts(c) else "dense")))
    if "index_topk" in c:
        one["indexer"] = _indexer(c)
    return {name: count * number for name, count in one.items() if count}


def config_of(model: Model) -> Config:
    """The text config, checked for a known model_type. Raises CatalogError."""
    _family(model.config)
    return model.config


def known_model_types() -> tuple[str, ...]:
    """Text model_types that have a formula."""
    return tuple(sorted(FAMILIES))


def indexer_layers(c: Config) -> int:
    """Layers that own a sparse-attention indexer; the others share the one before. Stated by layer, by a
    pattern of F and S, or by a schedule (transformers' configuration_glm_moe_dsa.py)."""
    if "index_topk" not in c:
        return 0
    kinds = c.get("indexer_types") or c.get("index_topk_pattern")
    if kinds:
        return sum(kind in ("full", "F") for kind in kinds)
    every, offset = int(c.get("index_topk_freq") or 1), int(c.get("index_skip_topk_offset", 2))
    return sum(max(i - offset + 1, 0) % every == 0 for i in range(int(c["num_hidden_layers"])))


def shared_width(c: Config) -> int:
    """Feed-forward width of all shared experts of one layer together; 0 without any."""
    if "moe_shared_expert_intermediate_size" in c:
        return int(c["n_shared_experts"] * c["moe_shared_expert_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        return int(c["shared_expert_intermediate_size"])
    return int((c.get("n_shared_experts") or 0) * (c.get("moe_intermediate_size") or 0))


# --- parts


def _grouped_attention(c: Config, *, bias: bool = False) -> int:
    """q, k, v, o projections; `bias` on q, k, v."""
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head = c.get("head_dim") or hidden // heads
    weights = 2 * hidden * heads * head + 2 * hidden * kv * head
    return int(weights + (heads + 2 * kv) * head * bias)


def _indexer(c: Config) -> int:
    """wq_b, wk, k_norm (LayerNorm: weight and bias), weights_proj."""
    heads, head, hidden = c["index_n_heads"], c["index_head_dim"], c["hidden_size"]
    return int(c["q_lora_rank"] * heads * head + hidden * head + 2 * head + hidden * heads)


def _gated_mlp(hidden: int, width: int) -> int:
    """gate, up, down."""
    return 3 * hidden * width


def _feed_forward(
    c: Config, kind: LayerKind, *, correction: bool = False, expert: str = "moe_intermediate_size"
) -> Counts:
    """A dense or MoE feed-forward with gated experts; `correction`: a bias that only chooses experts."""
    hidden, experts = c["hidden_size"], num_experts(c)
    if kind.feed_forward == "dense":
        return Counter(dense_mlp=_gated_mlp(hidden, c["intermediate_size"]))
    return Counter(
        routed_experts=experts * _gated_mlp(hidden, c[expert]),
        shared_experts=_gated_mlp(hidden, shared_width(c)),
        router=experts * hidden,
        router_correction_bias=experts if correction else 0,
    )


# --- one decoder layer of each family


def _latent(c: Config, kind: LayerKind) -> Counts:
    """DeepSeek-V3 and V3.2, Kimi-K2, GLM-5: multi-head latent attention; the indexer is counted apart."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q_rank, kv_rank = c["q_lora_rank"], c["kv_lora_rank"]  # a null q_lora_rank: queries are not compressed
    q = q_rank * (hidden + heads * (nope + rope)) if q_rank else hidden * heads * (nope + rope)
    kv = hidden * (kv_rank + rope) + kv_rank * heads * (nope + value)
    layer: Counts = Counter(attention=q + kv + heads * value * hidden, norms=2 * hidden + (q_rank or 0) + kv_rank)
    layer.update(_feed_forward(c, kind, correction=True))
    return layer


def _glm4_moe(c: Config, kind: LayerKind) -> Counts:
    qk_norm = 2 * c["head_dim"] if c["use_qk_norm"] else 0
    layer: Counts = Counter(
        attention=_grouped_attention(c, bias=bool(c["attention_bias"])), norms=2 * c["hidden_size"] + qk_norm
    )
    layer.update(_feed_forward(c, kind, correction=True))
    return layer


def _llama(c: Config, kind: LayerKind) -> Counts:
    layer: Counts = Counter(attention=_grouped_attention(c), norms=2 * c["hidden_size"])
    layer.update(_feed_forward(c, kind))
    return layer


def _qwen3(c: Config, kind: LayerKind) -> Counts:
    """Qwen3 and Qwen3-MoE: RMSNorm on each query and key head."""
    layer = _llama(c, kind)
    layer["norms"] += 2 * (c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
    return layer


def _minimax_m2(c: Config, kind: LayerKind) -> Counts:
    """RMSNorm over all query and all key heads together; intermediate_size is an expert's."""
    qk_norm = (c["num_attention_heads"] + c["num_key_value_heads"]) * c["head_dim"]
    layer: Counts = Counter(attention=_grouped_attention(c), norms=2 * c["hidden_size"] + qk_norm)
    layer.update(_feed_forward(c, kind, correction=bool(c.get("use_routing_bias", True)), expert="intermediate_size"))
    return layer


def _gpt_oss(c: Config, kind: LayerKind) -> Counts:
    """Biases everywhere, one sink logit a head; intermediate_size is an expert's."""
    hidden, width, experts = c["hidden_size"], c["intermediate_size"], num_experts(c)
    sinks_and_output_bias = c["num_attention_heads"] + hidden
    expert = hidden * 2 * width + 2 * width + width * hidden + hidden
    return Counter(
        attention=_grouped_attention(c, bias=True) + sinks_and_output_bias,
        norms=2 * hidden,
        routed_experts=experts * expert,
        router=experts * hidden + experts,
    )


def _nemotron_h(c: Config, kind: LayerKind) -> Counts:
    """One block: Mamba-2, attention, or a MoE of ungated relu2 experts, latent if moe_latent_size is set."""
    hidden = c["hidden_size"]
    block: Counts = Counter(norms=hidden)
    if kind.mixer == "linear":
        block["mamba"] = _mamba2(c)
    elif kind.mixer == "full":
        block["attention"] = _grouped_attention(c)
    elif kind.feed_forward == "dense":
        block["dense_mlp"] = 2 * hidden * c["intermediate_size"]
    else:
        experts, latent = num_experts(c), c.get("moe_latent_size") or 0
        block["routed_experts"] = experts * 2 * (latent or hidden) * c["moe_intermediate_size"]
        block["shared_experts"] = 2 * hidden * shared_width(c)
        block["latent_proj"] = 2 * hidden * latent
        block["router"] = experts * hidden
        block["router_correction_bias"] = experts
    return block


def _mamba2(c: Config) -> int:
    """in_proj (z, xBC, dt), conv1d, dt_bias + A_log + D, gated norm, out_proj."""
    heads, inner = c["mamba_num_heads"], c["mamba_num_heads"] * c["mamba_head_dim"]
    conv = inner + 2 * c["n_groups"] * c["ssm_state_size"]
    in_proj = c["hidden_size"] * (inner + conv + heads)
    conv1d = conv * c["conv_kernel"] + (conv if c["use_conv_bias"] else 0)
    return int(in_proj + conv1d + 3 * heads + inner + inner * c["hidden_size"])


def _qwen_hybrid(c: Config, kind: LayerKind) -> Counts:
    """Qwen3-Next and Qwen3.5: gated delta net; each n-th layer is attention with an output gate in q_proj."""
    hidden = c["hidden_size"]
    layer: Counts = Counter(norms=2 * hidden)
    if kind.mixer == "linear":
        layer["linear_attn"] = _gated_delta_net(c)
    else:
        layer["attention"] = _grouped_attention(c) + hidden * c["num_attention_heads"] * c["head_dim"]
        layer["norms"] += 2 * c["head_dim"]
    layer.update(_feed_forward(c, kind))
    if kind.feed_forward == "moe":
        layer["shared_expert_gate"] = hidden
    return layer


def _gated_delta_net(c: Config) -> int:
    """q, k, v; z; b and a; conv1d; dt_bias + A_log; norm; out."""
    hidden, value_heads = c["hidden_size"], c["linear_num_value_heads"]
    value = value_heads * c["linear_value_head_dim"]
    qkv = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + value
    projections = hidden * (qkv + value + 2 * value_heads) + value * hidden
    return int(projections + qkv * c["linear_conv_kernel_dim"] + 2 * value_heads + c["linear_value_head_dim"])


FAMILIES: dict[str, Callable[[Config, LayerKind], Counts]] = {
    "deepseek_v3": _latent,
    "deepseek_v32": _latent,
    "glm4_moe": _glm4_moe,
    "glm_moe_dsa": _latent,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _latent,
    "llama": _llama,
    "minimax_m2": _minimax_m2,
    "nemotron_h": _nemotron_h,
    "qwen3": _qwen3,
    "qwen3_5_moe_text": _qwen_hybrid,
    "qwen3_moe": _qwen3,
    "qwen3_next": _qwen_hybrid,
}


def _family(c: Config) -> Callable[[Config, LayerKind], Counts]:
    try:
        return FAMILIES[c.get("model_type", "")]
    except KeyError:
        known = ", ".join(known_model_types())
        raise CatalogError(f"no parameter formula for model_type {c.get('model_type')!r}", f"known: {known}") from None
