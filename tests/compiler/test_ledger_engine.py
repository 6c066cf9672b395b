"""The engine's ledger against published figures, its own sums and the direction in which it must move."""

from __future__ import annotations

import dataclasses

import pytest
from prlc import catalog
from prlc.compiler.ledger_engine import engine_ledger, engine_weights, kv_pool, low_latency_bytes

from tests.compiler.ledger_layouts import GIB, engine

QWEN = catalog.facts(catalog.model("qwen3-30b-a3b"))
GLM = catalog.facts(catalog.model("glm-5.1"))
TINY = catalog.facts(catalog.model("tiny-moe"))
H200, CPU = catalog.gpu("h200"), catalog.gpu("cpu")


@pytest.mark.parametrize(("tokens", "hidden", "experts", "mib"), [
    (128, 7168, 256, 1820),
    (256, 7168, 256, 3640),
    (512, 7168, 256, 7280),
    (256, 4096, 128, 1040),
    (256, 2048, 128, 520),
    (256, 5120, 160, 1625),
    (256, 7168, 384, 5460),
])  # fmt: skip
def test_low_latency_buffers_match_the_published_sizes(tokens: int, hidden: int, experts: int, mib: int) -> None:
    assert round(low_latency_bytes(tokens, hidden, experts) / 2**20) == mib


def test_one_gpu_holds_all_weights_and_shards_hold_less() -> None:
    alone = engine(dp=1, ep=1, all2all="none")
    assert engine_weights(QWEN, alone, "bf16") == 2 * QWEN.total_params
    fp8 = engine_weights(QWEN, alone, "fp8")
    assert QWEN.total_params < fp8 < 1.03 * QWEN.total_params
    routed = QWEN.params["routed_experts"]
    assert engine_weights(QWEN, engine(), "bf16") == 2 * (QWEN.total_params - routed) + 2 * routed // 8
    halves = engine_weights(QWEN, dataclasses.replace(alone, tp=2), "bf16")
    assert QWEN.total_params < halves < 1.01 * QWEN.total_params  # norms and router are whole on both


def test_latent_attention_stays_partly_whole_under_tensor_parallelism() -> None:
    one, eight = (engine_weights(GLM, engine(tp=tp, dp=64 // tp, ep=64), "bf16") for tp in (1, 8))
    routed = 2 * GLM.params["routed_experts"] // 64
    assert (one - routed) / 8 < eight - routed < one - routed


def test_kv_pool_is_what_the_memory_leaves() -> None:
    layout = engine()
    pool, tokens = kv_pool(QWEN, H200, layout, "bf16", True)
    assert tokens == pool // (QWEN.layers * 2 * QWEN.kv_heads * QWEN.head_dim * 2)
    made = engine_ledger(QWEN, H200, dataclasses.replace(layout, kv_bytes=pool, kv_tokens=tokens), "bf16", True)
    assert made.total == int(H200.memory * 0.9)
    assert kv_pool(QWEN, H200, layout, "bf16", False)[0] > pool
    assert kv_pool(GLM, H200, engine(dp=1, ep=1, all2all="none"), "bf16", True) == (0, 0)


def test_a_cpu_engine_holds_the_pool_that_the_layout_states() -> None:
    layout = engine(dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0, kv_bytes=GIB)
    pool, tokens = kv_pool(TINY, CPU, layout, "bf16", True)
    assert pool == GIB
    assert tokens == GIB // (TINY.layers * 2 * TINY.kv_heads * TINY.head_dim * 2)
