"""Where layers with experts stand reaches the orchestrator; nothing is said where they are the last ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from prlc.compiler.bundle.configs import orchestrator_config
from prlc.compiler.resolve import resolve
from prlc.compiler.rules.example import layout_of, spec_text


def config_with(changed: dict[str, Any], replay: bool = True) -> Any:
    found, diagnostics = resolve(spec_text({"model": "qwen3-30b-a3b"}), "run.yaml")
    assert found is not None, diagnostics
    model = dataclasses.replace(found.model, config={**found.model.config, "num_hidden_layers": 6, **changed})
    facts = dataclasses.replace(found.facts, layers=6)
    layout, _ = layout_of({"layout": {"router_replay": replay}})
    return orchestrator_config(dataclasses.replace(found, model=model, facts=facts), layout)


@pytest.mark.parametrize(
    ("changed", "places"),
    [
        ({}, None),
        ({"mlp_only_layers": [0, 1]}, None),
        ({"mlp_only_layers": [1]}, (0, 2, 3, 4, 5)),
        ({"mlp_only_layers": [5]}, (0, 1, 2, 3, 4)),
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, (1, 5)),
    ],
)
def test_places_of_layers_with_experts(changed: dict[str, Any], places: tuple[int, ...] | None) -> None:
    assert config_with(changed).moe_layer_ids == places
    assert config_with(changed, replay=False).moe_layer_ids is None


def test_the_same_layers_have_experts_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from prlc.catalog.shapes import moe_layer_ids

    config = transformers.Qwen3MoeConfig(
        hidden_size=8, intermediate_size=8, moe_intermediate_size=8, num_experts=2, num_experts_per_tok=1, head_dim=8,
        num_attention_heads=1, num_key_value_heads=1, vocab_size=8, num_hidden_layers=6, decoder_sparse_step=2,
        mlp_only_layers=[3],
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.Qwen3MoeForCausalLM(config)
    found = tuple(i for i, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "experts"))
    assert found == moe_layer_ids(config.to_dict()) == (1, 5)
