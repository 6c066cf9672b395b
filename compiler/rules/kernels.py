"""What the hardware's kernels can compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import of_cluster
from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

FP8_CAPABILITY = (9, 0)


def capability(text: str | None) -> tuple[int, int]:
    """'9.0' -> (9, 0); (0, 0) where there is none."""
    major, _, minor = (text or "0.0").partition(".")
    return int(major), int(minor or 0)


@spec_rule(
    "PRL331",
    refused={"cluster": "local-cpu", "trainer": {"precision": "fp8"}},
    accepted={"cluster": "h200-28x8", "trainer": {"precision": "fp8"}},
)
def fp8_needs_hopper(resolved: Resolved) -> Iterator[Diagnostic]:
    """fp8 needs a GPU of compute capability 9.0 or newer.

    Inequality: precision == fp8 => compute_capability >= 9.0
    Source: block-scaled fp8 GEMMs (DeepGEMM) are built for SM90 and newer; a CPU has none.
    Cure: precision: bf16.
    """
    gpu = resolved.gpu
    if gpu.device == "cuda" and capability(gpu.compute_capability) >= FP8_CAPABILITY:
        return
    for part in ("trainer", "inference"):
        if getattr(resolved.spec, part).precision == "fp8":
            yield finding(
                "PRL331",
                f"{gpu.name} has no fp8 kernels for the {'trainer' if part == 'trainer' else 'engines'}",
                resolved.span((part, "precision")),
                label="a CPU" if gpu.device == "cpu" else f"compute capability {gpu.compute_capability} < 9.0",
                rule="precision == fp8 => compute_capability >= 9.0",
                help="precision: bf16",
                related=of_cluster(resolved, ("node", "gpu"), gpu.name),
            )
