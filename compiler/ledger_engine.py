"""Memory of an engine's most loaded GPU, part by part in bytes, and the KV pool that it leaves.

Sources: DeepEP config.hpp (buffers), vLLM v1/kv_cache_interface.py (KV rows), vLLM all2all.py (buffer sizes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout
    from prlc.schema.hardware import Gpu

GIB = 2**30
FIXED_CUDA = 2 * GIB  # CUDA context and NCCL
FIXED_CPU = GIB  # interpreter, torch, vLLM's processes
GRAPHS = 2 * GIB  # CUDA graph pools of decode steps; an assumption, it depends on the captured sizes
FP8_BYTES = 1 + 4 / 128**2  # one fp32 scale a block of 128 x 128
WIDTH = {"fp32": 4.0, "bf16": 2.0, "fp8": 2.0}  # of what fp8 leaves alone: embedding, head, norms, router
REPLICATED = ("norms", "router", "router_correction_bias", "indexer", "shared_expert_gate")
WIDE = (
    "embedding",
    "lm_head",
    "norms",
    "router",
    "router_correction_bias",
    "shared_expert_gate",
)  # never fp8
LINEAR_STATE = 128 * 128 * 4  # bytes of one head's fp32 state, an upper bound over the catalog's hybrids


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """DeepEP low-latency buffer of a rank. Source: DeepEP config.hpp LowLatencyLayout.

    >>> round(low_latency_bytes(128, 7168, 256) / 2**20)
    1820
    """
    dispatch = 16 + max(2 * hidden, hidden + 4 * hidden // 128)
    combine = 4 * hidden // 128 + 2 * hidden
    counts = -(-4 * experts // 128) * 128
    return (
        2 * max(tokens * dispatch, experts * tokens * combine)
        + 2 * experts * tokens * max(dispatch, combine)
        + 2 * counts
    )


def _weights(facts: ModelFacts, layout: EngineLayout, precision: str) -> tuple[int, int]:
    """(bytes outside routed experts, bytes of routed experts) on the most loaded GPU."""
    wide = WIDTH[precision]
    narrow = FP8_BYTES if precision == "fp8" else wide
    latent = 0
    if facts.kv_lora_rank:  # the down-projections of MLA are whole on every rank
        latent = facts.layers * facts.hidden * ((facts.q_lora_rank or 0) + facts.kv_lora_rank + facts.rope_dim)
    outside = 0.0
    for name, count in facts.params.items():
        if name == "routed_experts":
            continue
        each = wide if name in WIDE else narrow
        if name in REPLICATED:
            outside += count * each
        elif name == "attention":
            whole = min(latent, count)
            outside += (whole + (count - whole) / layout.tp) * each
        else:
            outside += count / layout.tp * each
    ranks = layout.ep if layout.expert_parallel else layout.tp
    return int(outside), int(facts.params.get("routed_experts", 0) / ranks * narrow)


def engine_weights(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Bytes of weights on the most loaded GPU; MTP layers are not served."""
    return sum(_weights(facts, layout, precision))


def kv_token_bytes(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """KV bytes that one token more costs on one GPU; the cache stays bf16 under fp8 weights."""
    width = 4 if precision == "fp32" else 2
    if facts.kv_lora_rank:
        row = (facts.kv_lora_rank + facts.rope_dim) * width
        index = facts.index_head_dim + facts.index_head_dim // 128 * 4
        return facts.attention_layers * row + facts.indexer_layers * index
    shards = min(layout.tp, facts.kv_heads)
    return facts.attention_layers * (facts.head_dim + facts.v_head_dim) * width * facts.kv_heads // shards


def sequence_bytes(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Bytes on one GPU of a sequence whatever its length: sliding windows and recurrent states."""
    width = 4 if precision == "fp32" else 2
    total = 0
    if facts.sliding_window:
        sliding = max(0, facts.layers - facts.attention_layers - facts.linear_layers)
        heads = facts.kv_heads // min(layout.tp, facts.kv_heads)
        window = min(facts.sliding_window, layout.max_model_len)
        total += sliding * window * heads * (facts.head_dim + facts.v_head_dim) * width
    return total + facts.linear_layers * facts.mamba_heads * LINEAR_STATE // layout.tp


def _all2all(facts: ModelFacts, layout: EngineLayout) -> tuple[int, str]:
    tokens, hidden, experts = layout.max_num_batched_tokens, facts.expert_hidden, facts.num_experts
    if layout.all2all == "deepep_low_latency":
        size = low_latency_bytes(tokens, hidden, experts) + experts * tokens * hidden
        return (
            size,
            f"LowLatencyLayout({tokens} tokens, hidden {hidden}, {experts} experts) + received E x T x H",
        )
    if layout.all2all == "deepep_high_throughput":
        apart = layout.replicas < len(layout.nodes)  # a replica spans nodes
        return (2 if apart else 1) * GIB, "1 GiB NVLink" + (" + 1 GiB RDMA" if apart else "")
    if layout.all2all == "allgather_reducescatter" and layout.expert_parallel:
        size = 2 * tokens * layout.dp * hidden * 2
        return size, f"2 x {tokens} tokens x dp {layout.dp} x hidden {hidden} x 2 B"
    return 0, "none"


def _resident(
    facts: ModelFacts, gpu: Gpu, layout: EngineLayout, precision: str, router_replay: bool
) -> tuple[LedgerEntry, ...]:
    """Everything but the KV pool."""
    cuda = gpu.device == "cuda"
    outside, routed = _weights(facts, layout, precision)
    ranks = f"ep {layout.ep}" if layout.expert_parallel else f"tp {layout.tp}"
    each = f"{FP8_BYTES:.5f}" if precision == "fp8" else f"{WIDTH[precision]:g}"
    tokens, width = layout.max_num_batched_tokens, 4 if precision == "fp32" else 2
    ffn = max(facts.intermediate, facts.shared_intermediate + facts.top_k * facts.moe_intermediate) // layout.tp
    step = tokens * width * (6 * facts.hidden + 3 * ffn + 2 * facts.top_k * facts.expert_hidden)
    logits = min(layout.max_num_seqs, tokens) * facts.vocab * 8
    found = [
        LedgerEntry(
            what="weights outside experts", phase="always", bytes=outside,
            formula=f"({facts.total_params} - {facts.params.get('routed_experts', 0)} params) over tp {layout.tp}, "
            f"norms, router and latent projections whole, linear weights x {each} B, rest x {WIDTH[precision]:g} B",
        ),
        LedgerEntry(
            what="routed expert weights", phase="always", bytes=routed,
            formula=f"{facts.params.get('routed_experts', 0)} params / {ranks} x {each} B",
        ),
        LedgerEntry(
            what="step workspace", phase="prefill", bytes=step,
            formula=f"{tokens} tokens x {width} B x (6 x hidden {facts.hidden} + 3 x ffn {ffn} "
            f"+ 2 x top {facts.top_k} x hidden)",
        ),
        LedgerEntry(
            what="logits", phase="decode", bytes=logits,
            formula=f"{min(layout.max_num_seqs, tokens)} sequences x vocab {facts.vocab} x 8 B",
        ),
    ]  # fmt: skip
    size, text = _all2all(facts, layout)
    if size:
        found.append(LedgerEntry(what="expert all-to-all buffers", phase="always", bytes=size, formula=text))
    if router_replay and facts.num_experts:
        ids = tokens * facts.layers * facts.top_k * 4
        text = f"{tokens} tokens x {facts.layers} layers x top {facts.top_k} x 4 B"
        found.append(LedgerEntry(what="router-replay buffer", phase="always", bytes=ids, formula=text))
    if cuda:
        found.append(LedgerEntry(what="CUDA graphs", phase="decode", bytes=GRAPHS, formula="2 GiB"))
    fixed = FIXED_CUDA if cuda else FIXED_CPU
    what = "2 GiB: CUDA context and NCCL" if cuda else "1 GiB: interpreter, torch and vLLM"
    found.append(LedgerEntry(what="fixed", phase="always", bytes=fixed, formula=what))
    return tuple(found)


def kv_pool(facts: ModelFacts, gpu: Gpu, layout: EngineLayout, precision: str, router_replay: bool) -> tuple[int, int]:
    """(bytes of one GPU, tokens of one server): what utilization x HBM leaves; zeros when nothing is left.

    On a CPU the pool is what the layout states, for vLLM takes it from VLLM_CPU_KVCACHE_SPACE.
    """
    if gpu.device == "cpu":
        pool = layout.kv_bytes
    else:
        used = sum(entry.bytes for entry in _resident(facts, gpu, layout, precision, router_replay))
        pool = max(0, int(gpu.memory * layout.gpu_memory_utilization) - used)
    shared = pool - layout.max_num_seqs * sequence_bytes(facts, layout, precision)
    return pool, max(0, shared) // max(1, kv_token_bytes(facts, layout, precision))


def engine_ledger(facts: ModelFacts, gpu: Gpu, layout: EngineLayout, precision: str, router_replay: bool) -> Ledger:
    """Ledger of one GPU of the role (`hbm`), or of its one server on a CPU (`host`), KV pool included."""
    token = kv_token_bytes(facts, layout, precision)
    pool = LedgerEntry(
        what="KV pool",
        phase="decode",
        bytes=layout.kv_bytes,
        formula=f"{layout.kv_tokens} tokens x {token} B a GPU",
    )
    return Ledger(
        role=layout.role,
        resource="hbm" if gpu.device == "cuda" else "host",
        capacity=int(gpu.memory),
        entries=(*_resident(facts, gpu, layout, precision, router_replay), pool),
    )
