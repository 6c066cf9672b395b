"""Shapes that block-scaled fp8 kernels take: blocks of 128 x 128 weights and 1 x 128 activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import of_model
from prlc.compiler.rules.rule import finding, layout_rule, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineLayout, Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

BLOCK = 128
DEEP_GEMM_OUT = 512  # vLLM's DeepGEMM experts want more output columns than this
WIDTHS = (
    ("hidden", ("hidden_size",)),
    ("moe_intermediate", ("moe_intermediate_size", "intermediate_size")),
)


@spec_rule(
    "PRL332",
    refused={"model": "gpt-oss-20b", "trainer": {"precision": "fp8"}},
    accepted={"model": "qwen3-30b-a3b", "trainer": {"precision": "fp8"}},
)
def fp8_blocks_fill_the_weights(resolved: Resolved) -> Iterator[Diagnostic]:
    """fp8 blocks fill the trainer's weights.

    Inequality: hidden % 128 == 0 and the width of an expert % 128 == 0, where trainer.precision == fp8
    Source: torchao 0.18 blockwise fp8 grouped GEMM and DeepGEMM: K and N are multiples of 128 (SM90 recipe).
    Cure: trainer.precision: bf16.
    """
    if resolved.spec.trainer.precision != "fp8" or resolved.gpu.device == "cpu":
        return
    for name, keys in WIDTHS:
        width = getattr(resolved.facts, name)
        if width % BLOCK:
            yield finding(
                "PRL332",
                f"fp8 training cuts weights in blocks of {BLOCK}, and {keys[0]} is {width}",
                resolved.span(("trainer", "precision")),
                label=f"{width} % {BLOCK} = {width % BLOCK}, must be 0",
                rule="hidden % 128 == 0 and moe_intermediate % 128 == 0",
                help="precision: bf16",
                related=of_model(resolved, keys, f"{width}"),
            )
            return


def expert_shard(resolved: Resolved, engine: EngineLayout) -> int:
    """Width of one expert on one rank: whole with expert parallelism, else cut by tp."""
    return resolved.facts.moe_intermediate // (1 if engine.expert_parallel else engine.tp)


@layout_rule(
    "PRL333",
    refused={"spec": {"inference": {"precision": "fp8"}}, "engine": {"tp": 8, "dp": 1, "ep": 1}},
    accepted={"spec": {"inference": {"precision": "fp8"}}, "engine": {"tp": 2, "dp": 1, "ep": 1}},
)
def fp8_blocks_fill_a_shard(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """fp8 blocks fill what tensor parallelism leaves of an expert.

    Inequality: (moe_intermediate / tp) % 128 == 0, where inference.precision == fp8 and experts are cut by tp
    Source: vLLM 0.32 refuses a block-quantized expert whose shard is no multiple of the block (block_n = 128).
    Cure: a smaller tensor_parallel, or expert_parallel: true, which leaves experts whole.
    """
    facts = resolved.facts
    if resolved.spec.inference.precision != "fp8" or not facts.num_experts:
        return
    for engine in layout.engines:
        shard = expert_shard(resolved, engine)
        if shard % BLOCK:
            fits = [str(t) for t in (1, 2, 4, 8) if facts.moe_intermediate % (t * BLOCK) == 0]
            yield finding(
                "PRL333",
                f"tensor parallelism of {engine.tp} leaves {shard} columns of an expert, no whole fp8 block",
                resolved.span(("inference", "tensor_parallel")),
                label=f"{facts.moe_intermediate} / {engine.tp} = {shard}; {shard} % {BLOCK} = {shard % BLOCK}",
                rule="(moe_intermediate / tp) % 128 == 0",
                help=f"tensor_parallel that fits: {', '.join(fits)}" if fits else "precision: bf16",
                related=of_model(resolved, ("moe_intermediate_size", "intermediate_size"), "width of an expert"),
            )
            return


@layout_rule(
    "PRL334",
    refused={
        "spec": {"inference": {"precision": "fp8"}},
        "engine": {"tp": 3, "dp": 1, "ep": 1},
    },
    accepted={"spec": {"inference": {"precision": "fp8"}}, "engine": {"tp": 1, "dp": 4, "ep": 4}},
)
def deep_gemm_takes_the_experts(
    resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]
) -> Iterator[Diagnostic]:
    """DeepGEMM takes the shapes of the experts; else vLLM computes with other kernels and says nothing (warning).

    Inequality: 2 x moe_intermediate / tp > 512 and hidden % 128 == 0
    Source: vLLM 0.32 experts/deep_gemm_moe.py: M >= 128, N > 512, N and K multiples of 128; else Triton.
    Cure: a smaller tensor_parallel, or expert parallelism.
    """
    facts = resolved.facts
    if resolved.spec.inference.precision != "fp8" or not facts.num_experts:
        return
    for engine in layout.engines:
        columns = 2 * expert_shard(resolved, engine)
        if columns <= DEEP_GEMM_OUT or facts.expert_hidden % BLOCK:
            yield finding(
                "PRL334",
                f"experts of {columns} x {facts.expert_hidden} a rank are too small for DeepGEMM: Triton computes them",
                resolved.span(("inference", "precision")),
                label=f"N = {columns}, must be above {DEEP_GEMM_OUT}"
                if columns <= DEEP_GEMM_OUT
                else f"K = {facts.expert_hidden}, must be a multiple of {BLOCK}",
                rule="2 * moe_intermediate / tp > 512 and hidden % 128 == 0",
                help="tensor_parallel: 1, or precision: bf16",
                severity="warning",
            )
            return
