"""The KV pool: bytes of a token and of a sequence on one GPU, and tokens that a pool holds, in whole blocks.

Source: vLLM v1/kv_cache_interface.py and v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.memory import engine_memory
from prlc.compiler.ledger.widths import softmax_layers

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout

INDEX_SCALE = 4  # bytes of the fp32 scale that 128 indexer values share


def _row(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Bytes of one token in one layer with softmax attention; the cache stays bf16 under fp8 weights."""
    width = 4 if precision == "fp32" else 2
    if facts.kv_lora_rank:
        return (facts.kv_lora_rank + facts.rope_dim) * width
    heads = -(-facts.kv_heads // layout.tp)
    return heads * (facts.head_dim + facts.v_head_dim) * width


def kv_token_bytes(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """KV bytes that one token more costs on one GPU, indexer rows included."""
    index = facts.index_head_dim + facts.index_head_dim // 128 * INDEX_SCALE
    return facts.attention_layers * _row(facts, layout, precision) + facts.indexer_layers * index


def block_tokens(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Tokens of one block: vLLM raises it until a page holds the recurrent state of a layer."""
    base = engine_memory().block_tokens
    if not facts.linear_layers or not facts.attention_layers:
        return base
    state = facts.state_bytes // facts.linear_layers // layout.tp
    return max(base, -(-state // _row(facts, layout, precision) // base) * base)


def sequence_bytes(facts: ModelFacts, layout: EngineLayout, precision: str) -> int:
    """Bytes on one GPU of a running sequence whatever its length: sliding windows and recurrent states.

    A recurrent state fills a page of the attention layers' size, and `states` of them are held a layer.
    """
    total = 0
    row, block = _row(facts, layout, precision), block_tokens(facts, layout, precision)
    if facts.sliding_window:
        sliding = max(0, softmax_layers(facts) - facts.attention_layers)
        window = min(facts.sliding_window, layout.max_model_len)
        total += sliding * (-(-window // block) + 1) * block * row  # one block more: a window starts anywhere
    if facts.linear_layers:
        state = facts.state_bytes // facts.linear_layers // layout.tp
        page = max(state, block * row) if facts.attention_layers else state
        total += facts.linear_layers * engine_memory().states * page
    return total


def pool_tokens(facts: ModelFacts, layout: EngineLayout, precision: str, pool: int) -> int:
    """Tokens of a pool of `pool` bytes, as vLLM reports them: sequences of max_model_len that it holds, their blocks
    and states rounded up, times max_model_len.
    """
    block, length = block_tokens(facts, layout, precision), layout.max_model_len
    blocks = -(-length // block)
    if not facts.linear_layers and not facts.sliding_window:
        return pool // (block * max(1, kv_token_bytes(facts, layout, precision))) * length // blocks
    one = blocks * block * kv_token_bytes(facts, layout, precision) + sequence_bytes(facts, layout, precision)
    return pool * length // max(1, one)
