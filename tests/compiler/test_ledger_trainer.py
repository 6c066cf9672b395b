"""The trainer's ledger: its phases, its sums and the direction in which they must move."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from prlc import catalog
from prlc.catalog.memory import trainer_memory
from prlc.compiler.ledger.trainer import Adapters, torch_reserved, trainer_ledger
from prlc.compiler.ledger.units import adapter_params
from prlc.compiler.ledger.widths import layer_shape
from prlc.schema.plan import Ledger
from prlc.schema.trainer import HEAD_CHUNK_TOKENS

from tests.compiler.ledger_layouts import GIB, glm_mesh, mesh, part

QWEN = catalog.facts(catalog.model("qwen3-30b-a3b"))
GLM = catalog.facts(catalog.model("glm-5.1"))
NEMOTRON = catalog.facts(catalog.model("nemotron-3-super-120b-a12b"))
TINY = catalog.facts(catalog.model("tiny-moe"))
H200, CPU = catalog.gpu("h200"), catalog.gpu("cpu")


def qwen(**changed: Any) -> Ledger:
    return trainer_ledger(QWEN, H200, mesh(**changed), "bf16", 16384)


@pytest.mark.parametrize("made", [
    qwen(),
    qwen(activation_checkpoint="none", ep=8),
    trainer_ledger(GLM, H200, glm_mesh(12), "fp8", 131072),
    trainer_ledger(TINY, CPU, mesh(ranks_per_node=1, dp_shard=1, activation_checkpoint="none"), "fp32", 128),
])  # fmt: skip
def test_the_total_is_the_sum_of_the_fullest_phase(made: Ledger) -> None:
    assert made.total == sum(entry.bytes for entry in made.peak) == made.phases[made.peak_phase] > 0
    assert made.total == max(made.phases.values())
    assert all(entry.bytes >= 0 and entry.formula for entry in made.entries)
    assert len({entry.what for entry in made.entries}) == len(made.entries)
    left_out = set(made.entries) - set(made.peak)
    assert all(made.peak_phase not in entry.phases and entry.phase != "always" for entry in left_out)


def test_full_state_is_sixteen_bytes_a_parameter_over_the_shards() -> None:
    names = ("master weights", "gradients", "optimizer moments")
    made = qwen()
    assert sum(part(made, name) for name in names) == 16 * QWEN.total_params // 8
    offloaded = qwen(offload="cpu")
    assert not {entry.what for entry in offloaded.entries} & set(names)


def test_muon_keeps_one_moment_of_matrices_and_gathers_those_that_no_rank_holds_whole() -> None:
    adam, muon = qwen(), qwen(optimizer="muon")
    ends = sum(QWEN.params[name] for name in ("embedding", "lm_head", "norms"))
    saved = part(adam, "optimizer moments") - part(muon, "optimizer moments")
    assert saved == pytest.approx(4 * (QWEN.total_params - ends) / 8, abs=1)
    stack = 128 * 2048 * 768
    assert part(muon, "optimizer temporaries") == 12 * stack // 8  # 16 whole experts a rank
    wide = qwen(optimizer="muon", nodes=tuple(range(32)), dp_shard=256)
    assert part(wide, "optimizer temporaries") == 12 * stack


def test_experts_over_ranks_shrink_what_is_gathered_and_not_the_state() -> None:
    one, eight = (trainer_ledger(GLM, H200, glm_mesh(12, ep=ep, offload="none"), "bf16", 131072) for ep in (1, 8))
    for name in ("gathered units", "gradients awaiting reduction"):
        assert part(eight, name) < part(one, name) / 5
    assert part(eight, "master weights") == part(one, "master weights")


def test_offload_and_recompute_and_context_parallelism_save_memory() -> None:
    assert qwen(offload="cpu").total < qwen().total
    assert qwen().total < qwen(activation_checkpoint="selective").total < qwen(activation_checkpoint="none").total
    assert qwen(dp_shard=4, cp=2, micro_batch_tokens=8192).total < qwen().total
    kept = trainer_ledger(QWEN, H200, mesh(), "bf16", 16384, activation_offload=True)
    saved = part(qwen(), "activation stash") - part(kept, "activation stash")
    assert saved == 47 * 2 * QWEN.hidden * 16384  # all layers but the one in use


def test_glm_fits_on_the_nodes_that_it_is_trained_on() -> None:
    for nodes in (12, 16):
        made = trainer_ledger(GLM, H200, glm_mesh(nodes), "fp8", 131072)
        assert made.total <= made.capacity
        whole = trainer_ledger(GLM, H200, glm_mesh(nodes, offload="none"), "fp8", 131072)
        assert whole.total > whole.capacity


def test_nemotron_at_131k_fits_on_four_nodes_and_not_on_two() -> None:
    # prime-rl's recipe: cp 8, ep 8, "2 train nodes run out of memory"
    def made(nodes: int) -> Ledger:
        layout = mesh(nodes=tuple(range(nodes)), dp_shard=nodes, cp=8, ep=8, micro_batch_tokens=16384)
        return trainer_ledger(NEMOTRON, H200, layout, "bf16", 131072)

    assert made(4).total <= made(4).capacity
    assert made(2).total > made(2).capacity


def test_a_fused_head_keeps_one_chunk_of_logits_and_an_unfused_one_all() -> None:
    fused = qwen()
    unfused = trainer_ledger(QWEN, H200, mesh(), "bf16", 16384, head_kind="unfused")
    weight, states = (4 + 2) * QWEN.vocab * QWEN.hidden, 3 * 16384 * QWEN.hidden * 2
    assert part(fused, "head") == HEAD_CHUNK_TOKENS * QWEN.vocab * 6 + weight + states
    assert part(unfused, "head") == int(16384 * QWEN.vocab * trainer_memory().unfused_head) + states
    assert unfused.peak_phase == "head"


def test_adapters_leave_the_model_frozen() -> None:
    made = trainer_ledger(QWEN, H200, mesh(), "bf16", 16384, adapters=Adapters(rank=16, copies=4))
    names = {entry.what for entry in made.entries}
    assert part(made, "frozen weights") == 4 * QWEN.total_params // 8
    assert not names & {"gradients", "optimizer moments", "head gradient", "gradients awaiting reduction"}
    each = adapter_params(QWEN, 16)
    expert = 128 * 3 * (2048 + 768)
    attention = 2 * (2048 + 4096) + 2 * (2048 + 512)
    assert each == 48 * 16 * (attention + expert)
    assert part(made, "adapters") == 4 * 4 * each // 8


def test_what_torch_reserves_leaves_out_what_others_allocate() -> None:
    made = qwen(ep=8)
    outside = sum(part(made, name) for name in ("CUDA context", "NCCL buffers", "allocator reserve"))
    assert torch_reserved(made) == made.total - outside


def test_a_cpu_process_is_counted_as_host_memory_in_fp32() -> None:
    made = trainer_ledger(TINY, CPU, mesh(ranks_per_node=1, dp_shard=1), "bf16", 128)
    assert (made.resource, made.capacity) == ("host", int(CPU.memory))
    assert part(made, "activation stash") == 4 * TINY.hidden * TINY.layers * 128


def test_the_widest_layer_of_a_hybrid_is_its_experts_alone() -> None:
    shape = layer_shape(NEMOTRON)
    assert shape.routed == NEMOTRON.params["routed_experts"] // NEMOTRON.moe_layers
    assert shape.routed_hidden == 22 * 1024  # experts are latent
    mamba = NEMOTRON.params["mamba"] // NEMOTRON.linear_layers
    assert shape.unit == mamba  # a block is a mixer or a feed-forward


def test_selective_recompute_keeps_nothing_of_routed_rows() -> None:
    """torchtitan's policy keeps every second matrix product, and none of the grouped ones."""
    full, some = (part(qwen(activation_checkpoint=kind), "activation stash") for kind in ("full", "selective"))
    numbers, shape = trainer_memory(), layer_shape(QWEN)
    dense = numbers.live.hidden * shape.hidden + numbers.live.attention * shape.attention
    kept = int(numbers.scale * numbers.selective_share * dense)
    assert some - full == 48 * 16384 * kept


def test_context_parallel_ranks_exchange_heads_or_gather_the_latent() -> None:
    tokens = 32768 // 8
    made = trainer_ledger(QWEN, H200, mesh(dp_shard=1, cp=8, micro_batch_tokens=tokens), "bf16", 32768)
    # four key heads over eight ranks: each is copied once
    assert part(made, "exchanged heads") == 2 * tokens * 2 * (4096 + 2 * 1024 + 4096)
    latent = trainer_ledger(GLM, H200, glm_mesh(12), "fp8", 131072)
    assert part(latent, "gathered KV") == 2 * 131072 * 576 * 2


def test_another_calibration_can_be_named() -> None:
    half = dataclasses.replace(trainer_memory(), scale=trainer_memory().scale / 2)
    made = trainer_ledger(QWEN, H200, mesh(), "bf16", 16384, numbers=half)
    assert part(made, "layer working set") == pytest.approx(part(qwen(), "layer working set") / 2, abs=GIB / 2**20)
