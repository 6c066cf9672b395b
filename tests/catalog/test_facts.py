"""The flat record, against figures worked out by hand from the makers' configs."""

from __future__ import annotations

import pytest
from prlc import catalog
from prlc.catalog import params


def test_latent_attention() -> None:
    facts = catalog.facts(catalog.model("deepseek-v3"))
    assert (facts.layers, facts.dense_layers, facts.moe_layers, facts.attention_layers) == (61, 3, 58, 61)
    assert (facts.heads, facts.kv_heads, facts.head_dim, facts.v_head_dim, facts.rope_dim) == (
        128,
        1,
        192,
        128,
        64,
    )
    assert (facts.q_lora_rank, facts.kv_lora_rank, facts.index_topk, facts.indexer_layers) == (
        1536,
        512,
        None,
        0,
    )
    assert (facts.num_experts, facts.top_k, facts.moe_intermediate, facts.shared_intermediate) == (
        256,
        8,
        2048,
        2048,
    )


def test_shared_indexers_are_counted_once() -> None:
    # layers 0 to 2, then every fourth, own an indexer; the others use the one before
    facts = catalog.facts(catalog.model("glm-5.2"))
    kinds = catalog.model("glm-5.2").config["indexer_types"]
    assert facts.layers == 78
    assert facts.indexer_layers == kinds.count("full") == 21
    assert catalog.facts(catalog.model("glm-5.1")).indexer_layers == 78


def test_three_ways_to_say_which_layers_own_an_indexer() -> None:
    listed = dict(catalog.model("glm-5.2").config)
    types = listed.pop("indexer_types")
    pattern = "".join("F" if kind == "full" else "S" for kind in types)
    scheduled = {**listed, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    assert params.indexer_layers({**listed, "index_topk_pattern": pattern}) == 21
    assert params.indexer_layers(scheduled) == 21


def test_hybrid_blocks() -> None:
    facts = catalog.facts(catalog.model("nemotron-3-super-120b-a12b"))
    assert (facts.layers, facts.moe_layers, facts.linear_layers, facts.attention_layers) == (88, 40, 40, 8)
    assert (facts.hidden, facts.expert_hidden) == (4096, 1024)
    facts = catalog.facts(catalog.model("qwen3-next-80b-a3b"))
    assert (facts.layers, facts.moe_layers, facts.linear_layers, facts.attention_layers) == (48, 48, 36, 12)
    assert facts.rope_dim == 64  # a quarter of 256
    assert catalog.facts(catalog.model("qwen3.5-35b-a3b")).rope_dim == 64


def test_sliding_window() -> None:
    facts = catalog.facts(catalog.model("gpt-oss-120b"))
    assert (facts.attention_kind, facts.sliding_window, facts.attention_layers, facts.layers) == (
        "sliding",
        128,
        18,
        36,
    )
    assert (facts.intermediate, facts.moe_intermediate) == (0, 2880)


def test_dense_model() -> None:
    facts = catalog.facts(catalog.model("qwen3-0.6b"))
    assert facts.tied
    assert facts.num_experts == facts.top_k == facts.moe_layers == facts.moe_intermediate == 0
    assert facts.active_params == facts.total_params
    assert catalog.replay_bytes(facts).kept == 0


@pytest.mark.parametrize("name", catalog.names("model"))
def test_layers_add_up(name: str) -> None:
    facts = catalog.facts(catalog.model(name))
    if facts.attention_kind == "hybrid_mamba2":  # one block is one of the three
        assert facts.attention_layers + facts.linear_layers + facts.moe_layers + facts.dense_layers == facts.layers
    else:
        assert facts.moe_layers + facts.dense_layers == facts.layers
    assert facts.total_params == sum(facts.params.values())
    assert 0 < facts.active_params <= facts.total_params
