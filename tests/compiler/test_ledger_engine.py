"""The engine's ledger against published figures, its own sums and the direction in which it must move."""

from __future__ import annotations

import dataclasses

import pytest
from prlc import catalog
from prlc.compiler.ledger.engine import engine_ledger, engine_weights, kv_pool, low_latency_bytes
from prlc.compiler.ledger.kv import block_tokens, kv_token_bytes, sequence_bytes
from prlc.schema.plan import Ledger

from tests.compiler.ledger_layouts import GIB, engine, part

QWEN = catalog.facts(catalog.model("qwen3-30b-a3b"))
GLM = catalog.facts(catalog.model("glm-5.1"))
DEEPSEEK = catalog.facts(catalog.model("deepseek-v3"))
NEMOTRON = catalog.facts(catalog.model("nemotron-3-super-120b-a12b"))
OSS = catalog.facts(catalog.model("gpt-oss-120b"))
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
    row = QWEN.layers * 2 * QWEN.kv_heads * QWEN.head_dim * 2
    assert tokens == pool // (16 * row) * 16
    made = engine_ledger(QWEN, H200, dataclasses.replace(layout, kv_bytes=pool, kv_tokens=tokens), "bf16", True)
    assert made.total == int(H200.memory * 0.9)
    assert kv_pool(QWEN, H200, layout, "bf16", False)[0] > pool
    assert kv_pool(GLM, H200, engine(dp=1, ep=1, all2all="none"), "bf16", True) == (0, 0)


@pytest.mark.parametrize("made", [
    engine_ledger(GLM, H200, engine(), "fp8", True),
    engine_ledger(GLM, H200, engine(all2all="deepep_low_latency", max_num_batched_tokens=256), "fp8", True),
    engine_ledger(DEEPSEEK, H200, engine(dp=2, tp=4, ep=1, all2all="none"), "fp8", False),
    engine_ledger(TINY, CPU, engine(dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0), "bf16", True),
])  # fmt: skip
def test_the_total_is_the_sum_of_entries_that_have_formulas(made: Ledger) -> None:
    assert made.peak == made.entries
    assert made.total == sum(entry.bytes for entry in made.entries) > 0
    assert all(entry.bytes >= 0 and entry.formula for entry in made.entries)
    assert len({entry.what for entry in made.entries}) == len(made.entries)


def test_low_latency_decode_keeps_a_padded_batch_for_every_expert() -> None:
    """BatchedDeepGemm's workspaces hold experts x tokens rows, whatever the width of expert parallelism."""
    layout = engine(role="decode", all2all="deepep_low_latency", max_num_batched_tokens=256, dp=64, ep=64)
    made = engine_ledger(GLM, H200, layout, "fp8", True)
    rows = 256 * 256
    assert part(made, "step workspace") == rows * 2 * (6144 + 2048 + 6144) + 256 * 6 * GLM.intermediate
    buffers = low_latency_bytes(256, 6144, 256) + rows * 6144 + GIB
    assert part(made, "expert all-to-all buffers") == buffers
    half = engine_ledger(GLM, H200, dataclasses.replace(layout, max_num_batched_tokens=128), "fp8", True)
    assert part(half, "step workspace") == part(made, "step workspace") // 2


def test_experts_without_a_gate_need_half_the_width() -> None:
    layout = engine(dp=1, ep=1, all2all="none", max_num_batched_tokens=256)
    made = engine_ledger(NEMOTRON, H200, layout, "bf16", False)
    rows, ffn = 256 * 22, NEMOTRON.moe_intermediate
    shared = 256 * 6 * NEMOTRON.shared_intermediate
    assert part(made, "step workspace") == rows * (2 * ffn + 2 * ffn) + 256 * 1024 * 2 + shared


def test_gathered_tokens_widen_the_expert_workspace() -> None:
    alone = engine_ledger(QWEN, H200, engine(dp=1, ep=1, all2all="none"), "bf16", False)
    eight = engine_ledger(QWEN, H200, engine(all2all="allgather_reducescatter"), "bf16", False)
    assert part(eight, "step workspace") == 8 * part(alone, "step workspace")


def test_latent_attention_expands_cached_rows_and_keeps_absorbed_projections() -> None:
    whole, eighth = (
        engine_ledger(DEEPSEEK, H200, engine(tp=tp, dp=8 // tp, ep=8, max_num_batched_tokens=256), "fp8", False)
        for tp in (1, 8)
    )
    assert part(whole, "absorbed latent projections") == 61 * 512 * 128 * (128 + 128) * 2
    assert part(whole, "step workspace") > 65536 * 128 * (128 + 128) * 2
    assert part(eighth, "absorbed latent projections") == part(whole, "absorbed latent projections") // 8


def test_fp8_scales_are_an_entry_of_their_own() -> None:
    made = engine_ledger(QWEN, H200, engine(dp=1, ep=1, all2all="none"), "fp8", False)
    quantized = QWEN.params["attention"] + QWEN.params["routed_experts"]
    assert part(made, "fp8 scales") == 4 * quantized // 128**2
    assert part(made, "routed expert weights") == QWEN.params["routed_experts"]


def test_keys_and_values_are_copied_where_ranks_outnumber_their_heads() -> None:
    rows = [kv_token_bytes(QWEN, engine(tp=tp, dp=1, ep=1), "bf16") for tp in (1, 2, 4, 8)]
    assert rows[0] == 2 * rows[1] == 4 * rows[2]
    assert rows[3] == rows[2]


def test_a_recurrent_state_fills_a_page_and_counts_for_each_sequence() -> None:
    layout = engine(dp=1, ep=1, all2all="none")
    block = block_tokens(NEMOTRON, layout, "bf16")
    row = 2 * NEMOTRON.kv_heads * NEMOTRON.head_dim * 2
    state = NEMOTRON.state_bytes // NEMOTRON.linear_layers
    assert block % 16 == 0
    assert state <= block * row < state + 16 * row
    assert sequence_bytes(NEMOTRON, layout, "bf16") == NEMOTRON.linear_layers * 2 * block * row
    pool, tokens = kv_pool(NEMOTRON, H200, layout, "fp8", False)
    one = -(-16384 // block) * block * NEMOTRON.attention_layers * row + sequence_bytes(NEMOTRON, layout, "bf16")
    assert tokens == pool * 16384 // one


def test_sliding_layers_hold_their_window_alone() -> None:
    layout = engine(dp=1, ep=1, all2all="none")
    row = OSS.kv_heads * OSS.head_dim * 2 * 2
    assert kv_token_bytes(OSS, layout, "bf16") == 18 * row
    assert sequence_bytes(OSS, layout, "bf16") == 18 * (128 // 16 + 1) * 16 * row


def test_a_cpu_engine_holds_the_pool_that_the_layout_states() -> None:
    layout = engine(dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0, kv_bytes=GIB)
    pool, tokens = kv_pool(TINY, CPU, layout, "bf16", True)
    assert pool == GIB
    assert tokens == GIB // (16 * TINY.layers * 2 * TINY.kv_heads * TINY.head_dim * 2) * 16
