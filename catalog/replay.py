"""Size of the router-replay payload: which experts each token used, in every MoE layer.

Source: shape and dtype of vLLM's fused_moe/routed_experts_capturer.py. The dtype goes by the model, never by
the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.catalog.facts import ModelFacts

UINT8_EXPERTS = 256


@dataclass(frozen=True, kw_only=True)
class ReplayBytes:
    """Bytes of one token's row; zeros for a dense model."""

    dtype: Literal["uint8", "uint16"]
    kept: int  # MoE layers alone: what batches hold
    engine: int  # all layers: what vLLM keeps and returns, before base64 (x 4/3)


def replay_bytes(facts: ModelFacts) -> ReplayBytes:
    """Bytes a token of the routed experts of one model."""
    dtype: Literal["uint8", "uint16"] = "uint8" if facts.num_experts <= UINT8_EXPERTS else "uint16"
    row = facts.top_k * (1 if dtype == "uint8" else 2)
    return ReplayBytes(dtype=dtype, kept=facts.moe_layers * row, engine=facts.layers * row)
