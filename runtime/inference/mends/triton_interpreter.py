"""Lets vLLM's Model Runner V2 start on a CPU: its kernels run in Triton's own interpreter.

Fault: only Model Runner V2 returns routed experts; it needs Triton, and the Triton on PyPI has no CPU back
end, so vLLM 0.32.0 declares Triton absent and takes runner V1. Mend: an inactive driver is entered as
Triton's back end "cpu", which is all that vLLM looks for; TRITON_INTERPRET=1 then makes every `@triton.jit`
function run interpreted.
"""

from __future__ import annotations

import os

from prlc.runtime.inference.mends import MendError


class _NoDriver:
    """A driver that never offers itself: the interpreter needs none."""

    @staticmethod
    def is_active() -> bool:
        """False: Triton must not compile for this back end."""
        return False


def apply() -> None:
    """Enter the back end. Must run before vLLM asks whether Triton is there (vLLM's platform plugins do).

    Raises MendError without TRITON_INTERPRET=1, which Triton reads while it is imported.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise MendError("VLLM_USE_V2_MODEL_RUNNER=1 on a CPU needs TRITON_INTERPRET=1 set before Python starts")
    import triton.backends

    if "cpu" not in triton.backends.backends:
        triton.backends.backends["cpu"] = triton.backends.Backend(compiler=None, driver=_NoDriver)


def use_torch_sampler() -> None:
    """Top-k and top-p by vLLM's PyTorch code: its Triton kernel does not run interpreted."""
    import vllm.v1.sample.ops.topk_topp_sampler as sampler

    if not hasattr(sampler, "HAS_TRITON"):
        raise MendError("topk_topp_sampler.HAS_TRITON is gone: the choice of the top-k kernel has changed")
    sampler.HAS_TRITON = False
