"""The parts that all families share: linear, norm, feed-forward, mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from prlc.runtime.trainer import titan
from torch import nn

# Weights are drawn from N(0, 0.02) as Hugging Face configs default to, and overwritten by a checkpoint.
NORMAL = partial(nn.init.normal_, std=0.02)
LINEAR = {"weight": NORMAL, "bias": nn.init.zeros_}


def linear(inputs: int, outputs: int, bias: bool = False) -> titan.Linear.Config:
    """y = x W^T (+ b)."""
    return titan.Linear.Config(in_features=inputs, out_features=outputs, bias=bias, param_init=LINEAR)


def norm(size: int, eps: float) -> titan.RMSNorm.Config:
    """RMSNorm with a learned scale."""
    return titan.RMSNorm.Config(normalized_shape=size, eps=eps, param_init={"weight": nn.init.ones_})


def feed_forward(size: int, hidden: int) -> titan.FeedForward.Config:
    """SwiGLU."""
    return titan.FeedForward.Config(w1=linear(size, hidden), w2=linear(hidden, size), w3=linear(size, hidden))


class Experts(titan.GroupedExperts):
    """SwiGLU experts in the dtype of their weights; torchtitan's cast every product to bfloat16."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.GroupedExperts.Config):
        """As the experts they replace."""

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
        """x_RD: rows in the order of their experts."""
        w1, w2, w3 = (local(p) for p in (self.w1_EFD, self.w2_EDF, self.w3_EFD))
        offsets = torch.cumsum(num_tokens_per_expert_E, 0, dtype=torch.int32)

        def grouped(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self._grouped_mm(A=a, B_t=w.transpose(-2, -1), offs=offsets)
            return result

        x = x_RD.to(w1.dtype)
        return grouped(F.silu(grouped(x, w1)) * grouped(x, w3), w2).type_as(x_RD)


def local(parameter: Any) -> torch.Tensor:
    """A parameter as the plain tensor that this rank computes with."""
    result: torch.Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return result


def mixture(
    size: int,
    hidden: int,
    experts: int,
    top_k: int,
    *,
    score: Literal["softmax", "sigmoid"],
    normalise: bool,
    scale: float = 1.0,
    groups: int = 1,
    kept_groups: int = 1,
    corrected: bool = False,
    gate_bias: bool = False,
    shared: int = 0,
    routed: titan.GroupedExperts.Config | None = None,
) -> titan.MoE.Config:
    """A mixture-of-experts layer.

    corrected: a bias (e_score_correction_bias) is added to the scores for the choice alone. groups > 1: top_k is
    taken from the kept_groups groups whose two best scores sum highest (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
    shared: hidden size of the expert that every token passes; 0: none.
    """
    router = titan.TokenChoiceTopKRouter.Config(
        num_experts=experts,
        gate=linear(size, experts, gate_bias),
        num_expert_groups=groups if groups > 1 else None,
        num_limited_groups=kept_groups if groups > 1 else None,
        top_k=top_k,
        score_func=score,
        route_norm=normalise,
        route_scale=scale,
    )
    init = dict.fromkeys(("w1_EFD", "w2_EDF", "w3_EFD"), NORMAL)
    return titan.MoE.Config(
        num_experts=experts,
        # torchtitan keeps the bias as a buffer where it balances load; nothing here ever updates it
        load_balance_coeff=1e-3 if corrected else None,
        router=router,
        routed_experts=titan.RoutedExperts.Config(
            inner_experts=routed or Experts.Config(dim=size, hidden_dim=hidden, num_experts=experts, param_init=init),
            token_dispatcher=titan.AllToAllTokenDispatcher.Config(num_experts=experts, top_k=top_k),
        ),
        shared_experts=feed_forward(size, shared) if shared else None,
    )


def block(attention: Any, size: int, eps: float, *, dense: Any = None, moe: Any = None) -> titan.Block.Config:
    """x + attention(norm(x)), then x + (feed-forward or mixture)(norm(x))."""
    return titan.Block.Config(
        attention=attention, attention_norm=norm(size, eps), ffn_norm=norm(size, eps), feed_forward=dense, moe=moe
    )
