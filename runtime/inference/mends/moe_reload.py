"""Prepacks the experts again after a weight update.

Fault (vLLM 0.32.0, unquantized_fused_moe_method.py): `_setup_kernel` calls the experts' own
`process_weights_after_loading` only when it makes the kernel. On a weight update the CPU experts, which read
prepacked weights, therefore get raw ones: wrong outputs (mean |dlogp| about 0.3), no error.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


def mended(stock: Any) -> Any:
    """`_setup_kernel` that also prepacks when the kernel was there before."""

    @wraps(stock)
    def _setup_kernel(self: Any, layer: Any, w13: Any, w2: Any) -> None:
        is_update = self.moe_kernel is not None
        stock(self, layer, w13, w2)
        if is_update:
            self.moe_kernel.fused_experts.process_weights_after_loading(layer)

    return _setup_kernel


def apply() -> None:
    """Put the mend in place."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
        UnquantizedFusedMoEMethod as Method,
    )

    if not hasattr(Method._setup_kernel, "__wrapped__"):
        Method._setup_kernel = mended(Method._setup_kernel)
