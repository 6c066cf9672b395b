"""Keeps prefix caching as asked for with multi-head latent attention on the CPU.

Fault (vLLM 0.32.0, platforms/cpu.py): the platform switches prefix caching off for MLA, though its CPU
attention reads cached context exactly; and without prefix caching vLLM refuses to return routed experts.
Mend: the setting is put back.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


def mended(stock: Any) -> Any:
    """`check_and_update_config` (the function under the classmethod) that keeps `enable_prefix_caching`."""

    @wraps(stock)
    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked = vllm_config.cache_config.enable_prefix_caching
        stock(cls, vllm_config)
        vllm_config.cache_config.enable_prefix_caching = asked

    return check_and_update_config


def apply() -> None:
    """Put the mend in place."""
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.check_and_update_config.__func__
    if not hasattr(stock, "__wrapped__"):
        CpuPlatform.check_and_update_config = classmethod(mended(stock))
