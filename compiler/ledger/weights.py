"""Weights of an engine's most loaded GPU, in bytes. Multi-token-prediction layers are not served.

Source: shardings of vLLM's layers: linear.py (column and row parallel), vocab_parallel_embedding.py,
attention/mla_attention.py (down-projections whole on every rank), fused_moe (experts over ep, or each over tp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger.widths import softmax_layers
from prlc.schema.plan import LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout

WIDTH = {"fp32": 4, "bf16": 2, "fp8": 2}  # of what fp8 leaves alone: embedding, head, norms, router
BLOCK = 128 * 128  # weights that share one fp32 scale
WHOLE = ("norms", "router", "router_correction_bias", "shared_expert_gate")  # on every rank, never fp8
ENDS = ("embedding", "lm_head")


def _latent_whole(facts: ModelFacts) -> int:
    """Parameters of latent attention's down-projections: they are not split over heads."""
    if not facts.kv_lora_rank:
        return 0
    return facts.layers * facts.hidden * ((facts.q_lora_rank or 0) + facts.kv_lora_rank + facts.rope_dim)


def _attention(facts: ModelFacts, tp: int) -> int:
    """Attention parameters on one rank; keys and values stay whole heads where ranks outnumber them."""
    count = facts.params.get("attention", 0)
    if facts.kv_lora_rank:
        whole = min(_latent_whole(facts), count)
        return whole + -(-(count - whole) // tp)
    kv = softmax_layers(facts) * facts.hidden * facts.kv_heads * (facts.head_dim + facts.v_head_dim)
    kv = min(kv, count)
    return -(-(count - kv) // tp) + -(-kv // min(tp, facts.kv_heads))


def weight_entries(facts: ModelFacts, layout: EngineLayout, precision: str) -> tuple[LedgerEntry, ...]:
    """Named weights of one GPU: fp8 holds one byte a weight with a scale a 128 x 128 block, its own entry."""
    wide = WIDTH[precision]
    narrow = 1 if precision == "fp8" else wide
    params, tp = facts.params, layout.tp
    ranks = layout.ep if layout.expert_parallel else tp
    over = f"ep {layout.ep}" if layout.expert_parallel else f"tp {tp}"
    attention = _attention(facts, tp)
    known = {*ENDS, *WHOLE, "attention", "indexer", "routed_experts"}
    split = {name: count for name, count in params.items() if name not in known}
    parts = [
        ("embedding and head", sum(params.get(n, 0) for n in ENDS), tp, wide, f"tp {tp}"),
        ("attention weights", attention, 1, narrow, "rank"),
        ("indexer weights", params.get("indexer", 0), 1, narrow, "rank, whole"),
        *((f"{name.replace('_', ' ')} weights", count, tp, narrow, f"tp {tp}") for name, count in split.items()),
        ("norms and router", sum(params.get(n, 0) for n in WHOLE), 1, wide, "rank, whole"),
        ("routed expert weights", params.get("routed_experts", 0), ranks, narrow, over),
    ]
    found = [
        LedgerEntry(
            what=what,
            phase="always",
            bytes=-(-count // divisor) * width,
            formula=f"{count} params / {text} x {width} B",
        )
        for what, count, divisor, width, text in parts
        if count
    ]
    if facts.kv_lora_rank:
        row = facts.heads * (facts.head_dim - facts.rope_dim + facts.v_head_dim)
        size = facts.layers * facts.kv_lora_rank * row * wide // tp
        text = f"{facts.layers} layers x latent {facts.kv_lora_rank} x {row} x {wide} B / tp {tp}, beside kv_b_proj"
        found.append(LedgerEntry(what="absorbed latent projections", phase="always", bytes=size, formula=text))
    if precision == "fp8":
        quantized = sum(-(-count // divisor) for _, count, divisor, width, _ in parts if width == 1)
        text = f"{quantized} fp8 weights / {BLOCK} x 4 B"
        found.append(LedgerEntry(what="fp8 scales", phase="always", bytes=4 * quantized // BLOCK, formula=text))
    return tuple(found)


def engine_weights(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Bytes of weights on the most loaded GPU."""
    return sum(entry.bytes for entry in weight_entries(facts, layout, precision))
