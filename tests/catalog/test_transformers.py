"""Folders that the installed transformers writes: we read its config keys, its module tree has our counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc import catalog
from prlc.catalog import params

KIMI = "kimi_k2"  # a DeepSeek-V3 under another name; transformers has no class for it


@pytest.mark.runtime
@pytest.mark.parametrize("model_type", sorted(set(params.known_model_types()) - {KIMI}))
def test_default_config_of_each_family(tmp_path: Path, model_type: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type)
    config.save_pretrained(tmp_path)
    facts = catalog.facts(catalog.model(tmp_path))
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    buffers = facts.params.get("router_correction_bias", 0)
    assert facts.total_params - buffers == sum(weight.numel() for weight in module.parameters())
    if buffers:
        correction = [b for name, b in module.named_buffers() if name.endswith("e_score_correction_bias")]
        assert buffers == sum(bias.numel() for bias in correction)
