"""What vLLM loads of ours, in every one of its processes, through two entry points (see pyproject.toml).

`platform` runs while vLLM looks for its platform, before it decides whether Triton is there; it never offers
a platform. `general` runs when an engine's configuration or a worker starts: it registers the weight-transfer
backend `prlc_fs` (always) and, with PRLC_VLLM_MENDS=1 on a CPU, puts the mends of vLLM 0.32.0 in place.
"""

from __future__ import annotations

from prlc.runtime.inference import mends

BACKEND = "prlc_fs"


def platform() -> None:
    """Make Triton's interpreter count as Triton's CPU back end, if asked for. Returns None: no platform of
    ours.
    """
    if mends.wanted() and mends.second_runner():
        from prlc.runtime.inference.mends import triton_interpreter

        mends.require_version()
        triton_interpreter.apply()


def general() -> None:
    """Register `prlc_fs`; mend vLLM's CPU code if asked for. May be called more than once in a process."""
    register_backend()
    if mends.wanted():
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            mends.apply()


def register_backend() -> None:
    """Make `--weight-transfer-config '{"backend":"prlc_fs"}'` known to vLLM."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, "prlc.runtime.inference.weight_transfer", "FolderEngine")
