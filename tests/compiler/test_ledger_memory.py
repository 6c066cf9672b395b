"""Memory ledgers against published figures, their own sums and the direction in which they must move."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from prlc import catalog
from prlc.compiler.layout import EngineLayout, TrainerLayout
from prlc.compiler.ledger_engine import engine_ledger, engine_weights, kv_pool, low_latency_bytes
from prlc.compiler.ledger_trainer import trainer_ledger
from prlc.schema.plan import Ledger

GIB = 2**30
QWEN = catalog.facts(catalog.model("qwen3-30b-a3b"))
GLM = catalog.facts(catalog.model("glm-5.1"))
TINY = catalog.facts(catalog.model("tiny-moe"))
H200, CPU = catalog.gpu("h200"), catalog.gpu("cpu")


def mesh(**changed: Any) -> TrainerLayout:
    base = TrainerLayout(
        nodes=(0,),
        ranks_per_node=8,
        dp_replicate=1,
        dp_shard=8,
        cp=1,
        ep=1,
        offload="none",
        activation_checkpoint="full",
        micro_batch_tokens=16384,
    )
    return dataclasses.replace(base, **changed)


def glm_mesh(nodes: int, **changed: Any) -> TrainerLayout:
    wide = mesh(nodes=tuple(range(nodes)), dp_shard=2 * nodes, cp=4, ep=8, offload="cpu", micro_batch_tokens=32768)
    return dataclasses.replace(wide, **changed)


def engine(**changed: Any) -> EngineLayout:
    base = EngineLayout(
        role="engine",
        nodes=(0,),
        replicas=1,
        tp=1,
        dp=8,
        ep=8,
        all2all="deepep_high_throughput",
        max_model_len=16384,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        kv_bytes=0,
        kv_tokens=0,
    )
    return dataclasses.replace(base, **changed)


def part(ledger: Ledger, what: str) -> int:
    return {entry.what: entry.bytes for entry in ledger.entries}[what]


@pytest.mark.parametrize(("tokens", "measured"), [(16384, 74.6), (65536, 105.4)])
def test_full_finetune_of_qwen3_30b_on_8_h200(tokens: int, measured: float) -> None:
    made = trainer_ledger(QWEN, H200, mesh(micro_batch_tokens=tokens), "bf16", tokens)
    # what torch reserved: the reserve of the plan is beyond it
    expected = (made.total - part(made, "allocator reserve")) / GIB
    assert expected == pytest.approx(measured, rel=0.05)
    assert made.total / GIB == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("made", [
    trainer_ledger(QWEN, H200, mesh(), "bf16", 16384),
    trainer_ledger(GLM, H200, glm_mesh(12), "fp8", 131072),
    trainer_ledger(TINY, CPU, mesh(ranks_per_node=1, dp_shard=1, activation_checkpoint="none"), "fp32", 128),
    engine_ledger(GLM, H200, engine(), "fp8", True),
    engine_ledger(TINY, CPU, engine(dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0), "bf16", True),
])  # fmt: skip
def test_a_total_is_the_sum_of_parts_that_have_formulas(made: Ledger) -> None:
    assert made.total == sum(entry.bytes for entry in made.entries) > 0
    assert all(entry.bytes >= 0 and entry.formula for entry in made.entries)
    assert len({entry.what for entry in made.entries}) == len(made.entries)


def test_glm_fits_on_the_nodes_that_it_is_trained_on() -> None:
    for nodes in (12, 16):
        made = trainer_ledger(GLM, H200, glm_mesh(nodes), "fp8", 131072)
        assert made.total <= made.capacity
    few = trainer_ledger(GLM, H200, glm_mesh(4), "fp8", 131072)
    assert few.total > few.capacity


def test_experts_over_ranks_shrink_what_is_gathered_and_not_the_state() -> None:
    one, eight = (trainer_ledger(GLM, H200, glm_mesh(12, ep=ep), "bf16", 131072) for ep in (1, 8))
    assert part(eight, "gathered units") < part(one, "gathered units") / 6
    assert part(eight, "sharded state") == part(one, "sharded state")


def test_offload_and_recompute_and_context_parallelism_save_memory() -> None:
    def total(**changed: Any) -> int:
        return trainer_ledger(QWEN, H200, mesh(**changed), "bf16", 16384).total

    assert total(offload="cpu") < total()
    assert total() < total(activation_checkpoint="selective") < total(activation_checkpoint="none")
    assert total(dp_shard=4, cp=2, micro_batch_tokens=8192) < total()


def test_a_cpu_process_is_counted_as_host_memory_in_fp32() -> None:
    made = trainer_ledger(TINY, CPU, mesh(ranks_per_node=1, dp_shard=1), "bf16", 128)
    assert (made.resource, made.capacity) == ("host", int(CPU.memory))
    assert part(made, "checkpoint stash") == 4 * TINY.hidden * TINY.layers * 128


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
