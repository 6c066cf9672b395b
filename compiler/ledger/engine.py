"""Memory of an engine's most loaded GPU, part by part in bytes, and the KV pool that it leaves.

vLLM measures everything but the KV cache in one profiling step, keeps it reserved and gives the rest of its share
to the cache, so every part counts always. Coefficients: catalog/kernels/memory-engine.yaml. Sources: vLLM 0.32.0
v1/worker/gpu_worker.py, model_executor/layers/fused_moe/experts (workspace_shapes), distributed all2all.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.memory import engine_memory
from prlc.compiler.ledger.buffers import (
    NORMAL_BUFFER,
    engine_communicators,
    low_latency_bytes,
    normal_buffers,
    process_entries,
)
from prlc.compiler.ledger.kv import kv_token_bytes, pool_tokens, sequence_bytes
from prlc.compiler.ledger.weights import engine_weights, weight_entries
from prlc.compiler.ledger.widths import attention_width, expert_matrices
from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout
    from prlc.schema.hardware import Gpu

__all__ = ["engine_ledger", "engine_weights", "kv_pool", "kv_token_bytes", "low_latency_bytes", "sequence_bytes"]

FIXED_CPU = 2**30  # interpreter, torch and vLLM's processes
GROUP_ROWS = 128  # rows that a grouped FP8 GEMM pads each expert's group to


def _always(what: str, size: float, formula: str) -> LedgerEntry:
    return LedgerEntry(what=what, phase="always", bytes=int(size), formula=formula)


def _experts(facts: ModelFacts, layout: EngineLayout, precision: str) -> tuple[int, str]:
    """Workspaces of the fused experts in one step: the input of the second GEMM, the output of the first, the result.

    Rows are those that a rank receives at most: all of a padded batch under low latency, its tokens' copies else.
    """
    tokens, hidden, ffn = layout.max_num_batched_tokens, facts.expert_hidden, facts.moe_intermediate
    shards = 1 if layout.expert_parallel else layout.tp
    first = (expert_matrices(facts) - 1) * ffn // shards  # gate and up side by side, or up alone
    wide, narrow = max(first, hidden), max(ffn // shards, hidden)
    cache = 1 if precision == "fp8" else 2
    if layout.all2all == "deepep_low_latency":
        rows = facts.num_experts * tokens
        size = rows * 2 * (wide + ffn // shards + hidden)
        return size, f"{facts.num_experts} experts x {tokens} tokens x 2 B x ({wide} + {ffn // shards} + {hidden})"
    seen = tokens
    if layout.expert_parallel and layout.all2all == "allgather_reducescatter":
        seen *= layout.dp
    rows, text = seen * facts.top_k, f"{seen} tokens x top {facts.top_k}"
    if precision == "fp8":
        padding = facts.num_experts // max(1, layout.ep) * GROUP_ROWS
        rows, text = rows + padding, f"({text} + {padding} padding)"
    size = rows * (2 * wide + cache * narrow) + seen * hidden * 2
    return size, f"{text} x (2 x {wide} + {cache} x {narrow}) B + {seen} x {hidden} x 2 B"


def _attention(facts: ModelFacts, layout: EngineLayout) -> tuple[int, str]:
    """What attention of one layer holds beside the residual stream in a prefill step."""
    numbers = engine_memory()
    tokens, width = layout.max_num_batched_tokens, attention_width(facts) // layout.tp
    size = int(numbers.attention * width * tokens)
    text = f"{tokens} tokens x {numbers.attention:g} B x qkv {width}"
    latent = facts.kv_lora_rank or 0
    if facts.attention_kind == "dsa":
        rows = numbers.sparse_factor * layout.max_model_len
        size += rows * 2 * (latent + facts.rope_dim) + numbers.indexer_logits
        text += (
            f" + {rows} rows x {latent + facts.rope_dim} x 2 B + indexer logits {numbers.indexer_logits // 2**20} MiB"
        )
    elif latent:
        rows = min(numbers.latent_rows, 8 * layout.max_model_len)
        heads = facts.heads // layout.tp
        row = heads * (facts.head_dim - facts.rope_dim + facts.v_head_dim) + latent + facts.rope_dim
        size += rows * 2 * row
        text += f" + {rows} cached rows x {row} x 2 B"
    return size, text


def _feed_forward(facts: ModelFacts, layout: EngineLayout, precision: str) -> tuple[int, str]:
    numbers, tokens = engine_memory(), layout.max_num_batched_tokens
    width = max(facts.intermediate, facts.shared_intermediate) // layout.tp
    size, text = int(numbers.ffn * width * tokens), f"{tokens} tokens x {numbers.ffn:g} B x ffn {width}"
    if not facts.num_experts:
        return size, text
    experts, formula = _experts(facts, layout, precision)
    return (size + experts, f"{text} + {formula}") if width else (experts, formula)


def _workspace(facts: ModelFacts, layout: EngineLayout, precision: str) -> tuple[LedgerEntry, ...]:
    """The residual stream of a step, and the larger of what attention and the feed-forward need in turn."""
    numbers, tokens = engine_memory(), layout.max_num_batched_tokens
    scale = 2 if precision == "fp32" else 1
    attention, forward = _attention(facts, layout), _feed_forward(facts, layout, precision)
    size, text = max(attention, forward)
    stream = int(numbers.hidden * facts.hidden * tokens * scale)
    sampled = min(layout.max_num_seqs, tokens)
    whole = f"{tokens} tokens x {numbers.hidden:g} B x hidden {facts.hidden}"
    return (
        _always("step activations", stream, whole),
        _always("step workspace", size * scale, text),
        _always(
            "logits", sampled * facts.vocab * numbers.logits, f"{sampled} x vocab {facts.vocab} x {numbers.logits:g} B"
        ),
    )


def _all2all(facts: ModelFacts, layout: EngineLayout) -> LedgerEntry | None:
    tokens, hidden, experts = layout.max_num_batched_tokens, facts.expert_hidden, facts.num_experts
    what = "expert all-to-all buffers"
    if layout.all2all == "deepep_low_latency":
        size = low_latency_bytes(tokens, hidden, experts) + experts * tokens * hidden + NORMAL_BUFFER
        text = f"LowLatencyLayout({tokens} tokens, hidden {hidden}, {experts} experts) + received E x T x H"
        return _always(what, size, f"{text} + 1 GiB for NVLink")
    if layout.all2all == "deepep_high_throughput":
        return normal_buffers(what, layout.replicas < len(layout.nodes))  # a replica spans nodes
    if layout.all2all == "allgather_reducescatter" and layout.expert_parallel:
        size = 2 * tokens * layout.dp * hidden * 2
        return _always(what, size, f"2 x {tokens} tokens x dp {layout.dp} x hidden {hidden} x 2 B")
    return None


def _resident(
    facts: ModelFacts, gpu: Gpu, layout: EngineLayout, precision: str, router_replay: bool
) -> tuple[LedgerEntry, ...]:
    """Everything but the KV pool."""
    found = [*weight_entries(facts, layout, precision), *_workspace(facts, layout, precision)]
    buffers = _all2all(facts, layout)
    if buffers:
        found.append(buffers)
    if router_replay and facts.num_experts:
        tokens = layout.max_num_batched_tokens
        text = f"{tokens} tokens x {facts.layers} layers x top {facts.top_k} x 4 B"
        found.append(_always("router-replay buffer", tokens * facts.layers * facts.top_k * 4, text))
    if gpu.device == "cuda":
        numbers = engine_memory()
        found.append(_always("CUDA graphs", numbers.graphs, f"{numbers.graphs // 2**20} MiB"))
        found += process_entries(numbers, engine_communicators(layout))
    else:
        found.append(_always("fixed", FIXED_CPU, "1 GiB: interpreter, torch and vLLM"))
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
    return pool, pool_tokens(facts, layout, precision, pool)


def engine_ledger(facts: ModelFacts, gpu: Gpu, layout: EngineLayout, precision: str, router_replay: bool) -> Ledger:
    """Ledger of one GPU of the role (`hbm`), or of its one server on a CPU (`host`), KV pool included."""
    token = kv_token_bytes(facts, layout, precision)
    text = f"{layout.kv_tokens} tokens x {token} B a GPU"
    fixed = sequence_bytes(facts, layout, precision)
    if fixed:
        text += f" with {fixed} B of windows and states a sequence"
    return Ledger(
        role=layout.role,
        resource="hbm" if gpu.device == "cuda" else "host",
        capacity=int(gpu.memory),
        entries=(
            *_resident(facts, gpu, layout, precision, router_replay),
            _always("KV pool", layout.kv_bytes, text),
        ),
    )
