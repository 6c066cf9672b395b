"""Routes by sigmoid scores without groups on the CPU (MiniMax-M2).

Fault (vLLM 0.32.0, cpu_router.py): without groups `CPURouter` knows softmax only and asserts. Mend: sigmoid
scores with a selection bias are grouped top-k with one group, which the same file has.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


def mended(stock: Any, grouped_topk: Any) -> Any:
    """`_compute_routing` that takes `grouped_topk` with one group for plain sigmoid routing."""

    @wraps(stock)
    def _compute_routing(
        self: Any, hidden_states: Any, router_logits: Any, indices_type: Any, *, input_ids: Any = None
    ) -> Any:
        plain = not self.use_grouped_topk and self.custom_routing_function is None
        if not (plain and self.scoring_func == "sigmoid"):
            return stock(self, hidden_states, router_logits, indices_type, input_ids=input_ids)
        return grouped_topk(
            gating_output=router_logits,
            topk=self.top_k,
            renormalize=self.renormalize,
            num_expert_group=1,
            topk_group=1,
            scoring_func="sigmoid",
            routed_scaling_factor=self.routed_scaling_factor,
            e_score_correction_bias=self.e_score_correction_bias,
        )

    return _compute_routing


def apply() -> None:
    """Put the mend in place."""
    from vllm.model_executor.layers.fused_moe.router import cpu_router

    router = cpu_router.CPURouter
    if not hasattr(router._compute_routing, "__wrapped__"):
        router._compute_routing = mended(router._compute_routing, cpu_router._grouped_topk)
