"""What DeepEP's all-to-all kernels are built for (deepseek-ai/DeepEP@dd758ca, csrc/legacy and csrc/kernels/legacy)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import EXPERTS, of_model
from prlc.compiler.rules.rule import finding, layout_rule, spec_rule
from prlc.compiler.search.engine_layouts import DEEPEP_DEGREES

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

LL_HIDDEN = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)
LL_TOP_K, HT_TOP_K = 11, 32
LL_TOKENS = 1024 // 2 - 1  # NVSHMEM_QP_DEPTH / 2 - 1
LOCAL_EXPERTS = 1024
INFERENCE = ("inference",)
LL = {"all2all": "deepep_low_latency", "dp": 16, "ep": 16, "tp": 1, "max_num_batched_tokens": 256}
HT = {**LL, "all2all": "deepep_high_throughput"}


@spec_rule(
    "PRL501",
    refused={"model": "glm-4.5", "cluster": "h200-28x8", "inference": {"tensor_parallel": 1, "data_parallel": 40}},
    accepted={"model": "glm-4.5", "cluster": "h200-28x8", "inference": {"tensor_parallel": 1, "data_parallel": 32}},
)
def degree_has_kernels(resolved: Resolved) -> Iterator[Diagnostic]:
    """DeepEP has kernels for the number of ranks.

    Inequality: data_parallel x tensor_parallel in (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)
    Source: DeepEP legacy config_map and launch.cuh SWITCH_RDMA_RANKS; other counts abort when the group starts.
    Cure: one of these degrees.
    """
    inference = resolved.spec.inference
    dp, tp = inference.data_parallel, inference.tensor_parallel
    if dp == "auto" or dp == 1 or not resolved.facts.num_experts or resolved.gpu.device == "cpu":
        return
    if any(dp * t in DEEPEP_DEGREES for t in ((1, 2, 4, 8) if tp == "auto" else (tp,))):
        return
    ranks = dp * (1 if tp == "auto" else tp)
    near = sorted(sorted(DEEPEP_DEGREES, key=lambda n: abs(n - ranks))[:3])
    yield finding(
        "PRL501",
        f"DeepEP has no all-to-all kernels for {ranks} ranks",
        resolved.span(("inference", "data_parallel")),
        label=f"{ranks} is none of {', '.join(map(str, DEEPEP_DEGREES))}",
        rule="data_parallel * tensor_parallel is a degree with kernels",
        help=f"data_parallel * tensor_parallel near it: {', '.join(map(str, near))}",
    )


@layout_rule("PRL502", refused={"engine": {**HT, "dp": 24, "ep": 24}}, accepted={"engine": HT})
def ranks_hold_whole_experts(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Every rank of an engine group holds equally many experts.

    Inequality: num_experts % ep == 0 and num_experts / ep <= 1024
    Source: DeepEP buffer.hpp and intranode.cu:167; vLLM places num_experts / ep on a rank.
    Cure: data_parallel and tensor_parallel whose product divides the experts.
    """
    experts = resolved.facts.num_experts
    for engine in layout.engines:
        if engine.ep > 1 and (experts % engine.ep or experts // engine.ep > LOCAL_EXPERTS):
            yield finding(
                "PRL502",
                f"{engine.ep} ranks of {engine.role} cannot share {experts} experts",
                resolved.span(("inference", "data_parallel")) or resolved.span(("cluster",)),
                label=f"{experts} % {engine.ep} = {experts % engine.ep}, must be 0",
                rule="num_experts % ep == 0",
                help="data_parallel: auto",
                related=of_model(resolved, EXPERTS, f"{experts} experts"),
            )


@layout_rule(
    "PRL503",
    refused={"spec": {"model": "gpt-oss-120b"}, "engine": {**HT, "all2all": "deepep_low_latency", "tp": 1}}
    | {"layout": {"router_replay": False}},
    accepted={"spec": {"model": "qwen3-235b-a22b"}, "engine": LL},
)
def hidden_has_kernels(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """DeepEP has kernels for the width of a token.

    Inequality: low latency: hidden in (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192), and hidden % 512 == 0 for
    fp8; high throughput: hidden bytes % 16 == 0
    Source: DeepEP launch.cuh SWITCH_HIDDEN and buffer.hpp:458. vLLM pads a smaller width up to the next, which
    moves more bytes than the plan counts; a larger one aborts.
    Cure: disaggregate: false, or tensor parallelism without shared experts.
    """
    hidden = resolved.facts.expert_hidden
    for engine in layout.engines:
        if engine.all2all == "deepep_low_latency" and hidden not in LL_HIDDEN:
            padded = next((n for n in LL_HIDDEN if n > hidden), None)
            yield finding(
                "PRL503",
                f"DeepEP's low-latency kernels are not built for tokens of {hidden} values"
                + (f": vLLM pads them to {padded}" if padded else ""),
                resolved.span(("inference", "disaggregate")) or resolved.span(INFERENCE) or resolved.span(("model",)),
                label=f"{hidden} is none of {', '.join(map(str, LL_HIDDEN))}",
                rule="hidden is a width with kernels",
                help="disaggregate: false",
                severity="warning" if padded else "error",
                related=of_model(resolved, ("hidden_size",), f"{hidden}"),
            )
        if engine.all2all == "deepep_high_throughput" and (2 * hidden) % 16:
            yield finding(
                "PRL503",
                f"DeepEP moves tokens in words of 16 bytes, and {hidden} values are {2 * hidden} bytes",
                resolved.span(INFERENCE) or resolved.span(("model",)),
                label=f"{2 * hidden} % 16 = {2 * hidden % 16}, must be 0",
                rule="hidden bytes % 16 == 0",
                help="expert_parallel: false",
                related=of_model(resolved, ("hidden_size",), f"{hidden}"),
            )


@layout_rule(
    "PRL504",
    refused={"spec": {"model": "nemotron-3-super-120b-a12b"}, "engine": LL},
    accepted={"spec": {"model": "qwen3-235b-a22b"}, "engine": LL},
)
def top_k_has_kernels(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """DeepEP sends a token to no more experts than its kernels have lanes for.

    Inequality: top_k <= 11 in low-latency mode, top_k <= 32 in high-throughput mode
    Source: DeepEP internode_ll.cu:493 and :501; intranode.cu:251 and internode.cu:519 (device asserts).
    Cure: disaggregate: false, which uses the high-throughput kernels.
    """
    top_k = resolved.facts.top_k
    limits = {"deepep_low_latency": LL_TOP_K, "deepep_high_throughput": HT_TOP_K}
    for engine in layout.engines:
        limit = limits.get(engine.all2all)
        if limit and top_k > limit:
            yield finding(
                "PRL504",
                f"a token goes to {top_k} experts, and {engine.all2all} takes {limit}",
                resolved.span(("inference", "disaggregate")) or resolved.span(INFERENCE) or resolved.span(("model",)),
                label=f"{top_k} > {limit}",
                rule="top_k <= 11 (low latency), <= 32 (high throughput)",
                help="disaggregate: false" if limit == LL_TOP_K else "expert_parallel: false",
                related=of_model(resolved, ("num_experts_per_tok", "top_k"), f"{top_k} experts a token"),
            )


@layout_rule(
    "PRL505",
    refused={"engine": {**LL, "max_num_batched_tokens": 1024}},
    accepted={"engine": LL},
)
def decode_step_fits_the_buffers(
    resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]
) -> Iterator[Diagnostic]:
    """A decode step is no larger than DeepEP's low-latency buffers.

    Inequality: max_num_seqs <= T, T <= 511 and (ranks x T) % 4 == 0, with T = max_num_batched_tokens
    Source: DeepEP legacy.py:609; NVSHMEM_QP_DEPTH 1024 / 2 - 1. A larger batch is an assert, a hang, or memory that
    no ledger has; the DeepEP guide advises less than 256 tokens a rank.
    Cure: fewer tokens a step; prlc chooses 256.
    """
    for engine in layout.engines:
        tokens = engine.max_num_batched_tokens
        if engine.all2all != "deepep_low_latency":
            continue
        if engine.max_num_seqs > tokens or tokens > LL_TOKENS or (engine.ep * tokens) % 4:
            yield finding(
                "PRL505",
                f"a step of {engine.role} has up to {tokens} tokens and {engine.max_num_seqs} sequences a rank",
                resolved.span(INFERENCE) or resolved.span(("cluster",)),
                label=f"sequences <= tokens <= {LL_TOKENS} and ({engine.ep} x {tokens}) % 4 == 0",
                rule="max_num_seqs <= max_num_batched_tokens <= 511",
                help="disaggregate: false",
            )
