"""The catalog's tiny-moe is the model that the runtime makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc import catalog


@pytest.mark.runtime
def test_entry_equals_the_checkpoint(tmp_path: Path) -> None:
    from prlc.runtime.ops.tiny_model import write_model
    from safetensors import safe_open

    write_model(tmp_path / "tiny", seed=0)
    entry, made = catalog.model("tiny-moe"), catalog.model(tmp_path / "tiny")
    assert made.architecture == entry.architecture
    assert made.max_position_embeddings == entry.max_position_embeddings == 512
    # transformers 5 writes these two under other names
    written = {
        **made.config,
        "num_experts": made.config["num_local_experts"],
        **made.config["rope_parameters"],
    }
    for key, value in entry.config.items():
        assert written.get(key) == value, key
    facts = catalog.facts(entry)
    assert catalog.facts(made).params == facts.params
    with safe_open(str(tmp_path / "tiny" / "model.safetensors"), "pt") as weights:
        sizes = [weights.get_tensor(name).numel() for name in weights.keys()]  # noqa: SIM118
    assert sum(sizes) == facts.total_params
