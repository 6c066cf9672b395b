"""Families with grouped-query attention: Llama, Qwen3, Qwen3-MoE, GLM-4.5, MiniMax-M2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import PackedAttention
from prlc.runtime.trainer.families import names
from prlc.runtime.trainer.families.decoder import decoder, replicated, sequence_split
from prlc.runtime.trainer.families.layers import block, feed_forward, linear, mixture, norm
from prlc.runtime.trainer.families.rotary import parameters, rotary


class GroupedAttention(titan.GQAttention):
    """torchtitan's grouped-query attention."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.GQAttention.Config):
        """As torchtitan's."""

        def set_layer_sharding(self, layer: Any, enable_sp: bool, enable_ep: bool) -> None:
            """Sharding of the block around this attention."""
            titan.set_grouped_layer_sharding(layer, enable_sp=enable_sp, enable_ep=enable_ep)
            sequence_split(self)


class WideNorm(titan.RMSNorm):
    """RMSNorm over all heads of a token together: [B, L, N, H]."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.RMSNorm.Config):
        """normalized_shape: N x H."""

    def forward(self, input: Any) -> Any:
        """Normalise [B, L, N, H]."""
        return super().forward(input.flatten(2)).view_as(input)


class WideNormAttention(GroupedAttention):
    """Queries and keys normalised over all heads together, as MiniMax-M2 does."""

    @dataclass(kw_only=True, slots=True)
    class Config(GroupedAttention.Config):
        """Norms over N x H features of queries and of keys."""

        wide_q_norm: WideNorm.Config
        wide_k_norm: WideNorm.Config

        def set_layer_sharding(self, layer: Any, enable_sp: bool, enable_ep: bool) -> None:
            """Sharding of the block around this attention."""
            GroupedAttention.Config.set_layer_sharding(self, layer, enable_sp, enable_ep)
            self.wide_q_norm.sharding_config = replicated("weight")
            self.wide_k_norm.sharding_config = replicated("weight")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.q_norm = config.wide_q_norm.build()
        self.k_norm = config.wide_k_norm.build()


def head_size(hf: dict[str, Any]) -> int:
    """Features of one attention head."""
    return hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]


def attention(
    hf: dict[str, Any], length: int, *, per_head_norm: bool, rotated: float = 1.0, output_bias: bool = False
) -> GroupedAttention.Config:
    """Grouped-query attention of a config; `rotated`: share of a head's features with a position."""
    size, heads, head = hf["hidden_size"], hf["num_attention_heads"], head_size(hf)
    keys, bias = hf.get("num_key_value_heads") or heads, bool(hf.get("attention_bias", False))
    return GroupedAttention.Config(
        n_heads=heads,
        n_kv_heads=keys,
        head_dim=head,
        dim=size,
        qkv_linear=titan.QKVLinear.Config(
            head_dim=head, wq=linear(size, heads * head, bias), wkv=linear(size, keys * head, bias)
        ),
        wo=linear(heads * head, size, bias and output_bias),
        qk_norm=norm(head, eps(hf)) if per_head_norm else None,
        inner_attention=PackedAttention.Config(),
        rope=rotary(hf, int(head * rotated), length),
    )


def eps(hf: dict[str, Any]) -> float:
    """Of the norms."""
    return float(hf.get("rms_norm_eps", 1e-6))


COMMON = names.ROOT | names.NORMS | names.GROUPED_QUERY


def dense(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """Llama and dense Qwen3."""
    size = hf["hidden_size"]
    layers = [
        block(
            attention(hf, length, per_head_norm=hf["model_type"] == "qwen3", output_bias=True),
            size,
            eps(hf),
            dense=feed_forward(size, hf["intermediate_size"]),
        )
        for _ in range(hf["num_hidden_layers"])
    ]
    config = decoder(hf, layers, eps(hf))
    return config, names.Names(COMMON | names.DENSE, tied=config.enable_weight_tying)


def qwen3_moe(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """Qwen3-MoE: softmax over all experts, no shared expert."""
    size, only_dense, every = hf["hidden_size"], hf.get("mlp_only_layers") or [], hf.get("decoder_sparse_step", 1)

    def layer(index: int) -> Any:
        sparse = index not in only_dense and (index + 1) % every == 0
        return block(
            attention(hf, length, per_head_norm=True, output_bias=True),
            size,
            eps(hf),
            dense=None if sparse else feed_forward(size, hf["intermediate_size"]),
            moe=mixture(
                size,
                hf["moe_intermediate_size"],
                expert_count(hf),
                hf["num_experts_per_tok"],
                score="softmax",
                normalise=bool(hf.get("norm_topk_prob", False)),
            )
            if sparse
            else None,
        )

    config = decoder(hf, [layer(index) for index in range(hf["num_hidden_layers"])], eps(hf))
    return config, names.Names(COMMON | names.DENSE | names.MIXTURE, tied=config.enable_weight_tying)


def corrected_block(hf: dict[str, Any], index: int, attention: Any) -> Any:
    """A block of GLM-4.5 or DeepSeek-V3: dense first layers, then sigmoid scores corrected for the choice alone."""
    size = hf["hidden_size"]
    kinds = hf.get("mlp_layer_types")
    sparse = kinds[index] == "sparse" if kinds else index >= hf.get("first_k_dense_replace", 0)
    if not sparse:
        return block(attention, size, eps(hf), dense=feed_forward(size, hf["intermediate_size"]))
    hidden = hf["moe_intermediate_size"]
    return block(
        attention,
        size,
        eps(hf),
        moe=mixture(
            size,
            hidden,
            expert_count(hf),
            hf["num_experts_per_tok"],
            score="sigmoid",
            normalise=bool(hf.get("norm_topk_prob", True)),
            scale=float(hf.get("routed_scaling_factor", 1.0)),
            groups=hf.get("n_group") or 1,
            kept_groups=hf.get("topk_group") or 1,
            corrected=True,
            shared=hidden * (hf.get("n_shared_experts") or 0),
        ),
    )


def glm4_moe(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """GLM-4.5, 4.6, 4.7: half of each head rotated, biases on queries, keys and values alone."""
    rotated = float(parameters(hf).get("partial_rotary_factor", hf.get("partial_rotary_factor", 0.5)))
    layers = [
        corrected_block(
            hf, index, attention(hf, length, per_head_norm=bool(hf.get("use_qk_norm", False)), rotated=rotated)
        )
        for index in range(hf["num_hidden_layers"])
    ]
    config = decoder(hf, layers, eps(hf))
    return config, names.Names(COMMON | names.DENSE | names.MIXTURE, tied=config.enable_weight_tying)


def minimax_m2(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """MiniMax-M2: norms over all heads together, sigmoid scores with a correction, no scaling, no shared expert."""
    size, head = hf["hidden_size"], head_size(hf)
    rotated = parameters(hf).get("partial_rotary_factor") or hf.get("rotary_dim", head) / head
    heads, keys = hf["num_attention_heads"], hf["num_key_value_heads"]

    def wide(count: int) -> WideNorm.Config:
        plain = norm(count * head, eps(hf))
        return WideNorm.Config(normalized_shape=plain.normalized_shape, eps=plain.eps, param_init=plain.param_init)

    def layer() -> Any:
        plain = attention(hf, length, per_head_norm=False, rotated=float(rotated))
        return block(
            WideNormAttention.Config(
                n_heads=plain.n_heads,
                n_kv_heads=plain.n_kv_heads,
                head_dim=plain.head_dim,
                dim=plain.dim,
                qkv_linear=plain.qkv_linear,
                wo=plain.wo,
                inner_attention=plain.inner_attention,
                rope=plain.rope,
                wide_q_norm=wide(heads),
                wide_k_norm=wide(keys),
            ),
            size,
            eps(hf),
            moe=mixture(
                size,
                hf["intermediate_size"],
                expert_count(hf),
                hf["num_experts_per_tok"],
                score="sigmoid",
                normalise=True,
                corrected=True,
            ),
        )

    config = decoder(hf, [layer() for _ in range(hf["num_hidden_layers"])], eps(hf))
    stem = "model.layers.{}.block_sparse_moe"
    mixture_names = {
        "layers.{}.moe.router.gate.weight": f"{stem}.gate.weight",
        "layers.{}.moe.expert_bias_E": f"{stem}.e_score_correction_bias",
        f"{names.EXPERTS}w1_EFD": stem + ".experts.{}.w1.weight",
        f"{names.EXPERTS}w2_EDF": stem + ".experts.{}.w2.weight",
        f"{names.EXPERTS}w3_EFD": stem + ".experts.{}.w3.weight",
    }
    return config, names.Names(COMMON | mixture_names, tied=config.enable_weight_tying)


def expert_count(hf: dict[str, Any]) -> int:
    """Routed experts of a layer, under whichever key the config has; 0 for a dense model."""
    keys = ("num_experts", "n_routed_experts", "num_local_experts")
    return int(next((hf[key] for key in keys if hf.get(key)), 0))
