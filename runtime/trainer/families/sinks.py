"""gpt-oss: sliding windows on some layers, a learned sink a head, experts with biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import PackedAttention
from prlc.runtime.trainer.families import names
from prlc.runtime.trainer.families.decoder import decoder, sequence_split
from prlc.runtime.trainer.families.grouped import eps, expert_count, head_size
from prlc.runtime.trainer.families.layers import NORMAL, block, linear, local, mixture
from prlc.runtime.trainer.families.rotary import rotary
from torch import nn


class SinkAttention(titan.SinkAttention):
    """torchtitan's attention with sinks; YaRN's amplitude is in the rotation."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.SinkAttention.Config):
        """As torchtitan's."""

        def set_layer_sharding(self, layer: Any, enable_sp: bool, enable_ep: bool) -> None:
            """Sharding of the block around this attention."""
            titan.set_sink_layer_sharding(layer, enable_sp=enable_sp, enable_ep=enable_ep)
            self.wo.sharding_config = titan.rowwise_config(output_sp=enable_sp)
            sequence_split(self)


class BiasedExperts(titan.GptOssGroupedExperts):
    """Clamped SwiGLU experts with biases, in the dtype of their weights."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.GptOssGroupedExperts.Config):
        """`alpha`: gain inside the sigmoid."""

        alpha: float = 1.702

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.alpha = config.alpha

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
        """x_RD: rows in the order of their experts."""
        offsets = torch.cumsum(num_tokens_per_expert_E, 0, dtype=torch.int32)
        counts = num_tokens_per_expert_E.long()

        def grouped(a: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
            product: torch.Tensor = self._grouped_mm(A=a, B_t=local(weight).transpose(-2, -1), offs=offsets)
            return product + local(bias).repeat_interleave(counts, dim=0, output_size=len(a))

        hidden = grouped(x_RD.to(local(self.mlp1_weight_EGD).dtype), self.mlp1_weight_EGD, self.mlp1_bias_EG)
        active = titan.swiglu(hidden, alpha=self.alpha, limit=self.swiglu_limit)
        return grouped(active, self.mlp2_weight_EDF, self.mlp2_bias_ED).type_as(x_RD)


def gpt_oss(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """gpt-oss in bfloat16 or float32; softmax over the chosen logits is softmax over all, normalised."""
    size, heads, keys, head = hf["hidden_size"], hf["num_attention_heads"], hf["num_key_value_heads"], head_size(hf)
    hidden, experts, top_k = hf["intermediate_size"], expert_count(hf), hf["num_experts_per_tok"]
    bias = bool(hf.get("attention_bias", True))
    kinds = hf.get("layer_types") or [
        "sliding_attention" if index % 2 == 0 else "full_attention" for index in range(hf["num_hidden_layers"])
    ]
    init = {
        "mlp1_weight_EGD": NORMAL,
        "mlp1_bias_EG": nn.init.zeros_,
        "mlp2_weight_EDF": NORMAL,
        "mlp2_bias_ED": nn.init.zeros_,
    }

    def layer(kind: str) -> Any:
        window = int(hf["sliding_window"]) if kind == "sliding_attention" else 0
        attention = SinkAttention.Config(
            n_heads=heads,
            n_kv_heads=keys,
            head_dim=head,
            dim=size,
            qkv_linear=titan.QKVLinear.Config(
                head_dim=head, wq=linear(size, heads * head, bias), wkv=linear(size, keys * head, bias)
            ),
            wo=linear(heads * head, size, bias),
            inner_attention=PackedAttention.Config(window=window),
            sliding_window_size=window or None,
            param_init={"sinks": NORMAL},
            rope=rotary(hf, head, length),
        )
        routed = BiasedExperts.Config(
            dim=size,
            hidden_dim=hidden,
            num_experts=experts,
            swiglu_limit=float(hf.get("swiglu_limit", 7.0)),
            alpha=float(hf.get("swiglu_alpha", 1.702)),
            param_init=init,
        )
        moe = mixture(size, hidden, experts, top_k, score="softmax", normalise=True, gate_bias=True, routed=routed)
        return block(attention, size, eps(hf), moe=moe)

    config = decoder(hf, [layer(kind) for kind in kinds], eps(hf))
    stem = "model.layers.{}.mlp"
    mixture_names = {
        "layers.{}.moe.router.gate.weight": f"{stem}.router.weight",
        "layers.{}.moe.router.gate.bias": f"{stem}.router.bias",
        f"{names.EXPERTS}mlp1_weight_EGD": f"{stem}.experts.gate_up_proj",
        f"{names.EXPERTS}mlp1_bias_EG": f"{stem}.experts.gate_up_proj_bias",
        f"{names.EXPERTS}mlp2_weight_EDF": f"{stem}.experts.down_proj",
        f"{names.EXPERTS}mlp2_bias_ED": f"{stem}.experts.down_proj_bias",
    }
    transposed = frozenset({f"{names.EXPERTS}mlp1_weight_EGD", f"{names.EXPERTS}mlp2_weight_EDF"})
    common = names.ROOT | names.NORMS | names.GROUPED_QUERY
    return config, names.Names(common | mixture_names, transposed=transposed)
