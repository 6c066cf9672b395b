"""Every count of every model, against expected_counts.json: parameters of the module trees of transformers
5.24 on the meta device (main, mtp), sizes of real checkpoints (checkpoint), page sizes of vLLM's cache
classes (kv, state, window) and the routed-experts shapes of vLLM (replay)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prlc import catalog
from prlc.catalog import params

EXPECTED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("expected_counts.json").read_text())
each = pytest.mark.parametrize("name", sorted(EXPECTED))


def test_every_published_model_has_expected_counts() -> None:
    assert set(catalog.names("model")) == set(EXPECTED) | {"tiny-moe"}
    assert len(EXPECTED) == 37


@each
def test_parameters_by_component(name: str) -> None:
    model = catalog.model(name)
    assert params.main_params(model) == EXPECTED[name]["main"]
    assert params.mtp_params(model) == EXPECTED[name]["mtp"]


@each
def test_totals(name: str) -> None:
    facts, expected = catalog.facts(catalog.model(name)), EXPECTED[name]
    assert facts.total_params == expected["main_total"]
    assert facts.mtp_params == sum(expected["mtp"].values())
    assert facts.active_params == expected["active"]


@pytest.mark.parametrize("name", sorted(name for name, row in EXPECTED.items() if row["checkpoint"]))
def test_real_checkpoints(name: str) -> None:
    model = catalog.model(name)
    facts, mtp = catalog.facts(model), params.mtp_params(model)
    main, bias = facts.total_params, facts.params.get("router_correction_bias", 0)
    both, both_bias = main + facts.mtp_params, bias + mtp.get("router_correction_bias", 0)
    experts = facts.moe_layers * facts.num_experts * 3 * facts.hidden * facts.moe_intermediate
    sizes = {
        "elements_main": main,
        "elements_main_plus_mtp": both,
        "bytes_main_bf16": 2 * main,
        "bytes_main_bf16_fp32bias": 2 * main + 2 * bias,
        "bytes_main_plus_mtp_bf16_fp32bias": 2 * both + 2 * both_bias,
        "bytes_full_checkpoint_bf16": 2 * (both + model.vision_params),
        # 4-bit experts with one scale byte for 32 values, the rest bf16
        "mxfp4_checkpoint_bytes": experts // 2 + experts // 32 + 2 * (main - experts),
    }
    for published in EXPECTED[name]["checkpoint"]:
        assert sizes[published["kind"]] == published["value"], published["kind"]


@each
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_ds_mla"])
def test_kv_cache(name: str, dtype: catalog.KvDtype) -> None:
    model, expected = catalog.model(name), EXPECTED[name]
    if dtype not in expected["kv"]:
        with pytest.raises(catalog.CatalogError, match="no sparse attention"):
            catalog.kv_bytes(model, dtype)
        return
    kv = catalog.kv_bytes(model, dtype)
    assert kv.per_token == expected["kv"][dtype]
    assert kv.per_sequence == expected["state"]
    if dtype == "bf16":
        assert kv.per_window_token * kv.window == expected["window"]
        assert kv.per_token_mtp == expected["kv_mtp"]


def test_kv_of_a_sequence_counts_a_window_once() -> None:
    kv = catalog.kv_bytes(catalog.model("gpt-oss-20b"), "bf16")
    assert kv.window == 128
    assert kv.of(100) == 100 * (kv.per_token + kv.per_window_token)
    assert kv.of(1128) - kv.of(128) == 1000 * kv.per_token


@each
def test_replay(name: str) -> None:
    replay = catalog.replay_bytes(catalog.facts(catalog.model(name)))
    assert {"kept": replay.kept, "engine": replay.engine} == EXPECTED[name]["replay"]


def test_replay_dtype_goes_by_the_expert_count() -> None:
    assert catalog.replay_bytes(catalog.facts(catalog.model("glm-5.1"))).dtype == "uint8"  # 256 experts
    assert catalog.replay_bytes(catalog.facts(catalog.model("kimi-k2.5"))).dtype == "uint16"  # 384
