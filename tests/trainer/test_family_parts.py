"""Parts of the families by themselves: schedules, names, masks, older configs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.runtime


@pytest.mark.parametrize(("every", "offset"), [(1, 2), (4, 3), (3, 1)])
def test_indexers_are_shared_as_transformers_says(every: int, offset: int) -> None:
    from prlc.runtime.trainer.families.sparse import indexer_kinds
    from transformers import GlmMoeDsaConfig

    config = GlmMoeDsaConfig(num_hidden_layers=11, index_topk_freq=every, index_skip_topk_offset=offset)
    hf = {"num_hidden_layers": 11, "index_topk_freq": every, "index_skip_topk_offset": offset}
    assert indexer_kinds(hf) == config.indexer_types


def test_older_configs_of_rotary_embeddings_mean_the_same() -> None:
    """Kimi-K2's config.json has rope_theta and rope_scaling, DeepSeek-V3's in transformers 5 rope_parameters."""
    from prlc.runtime.trainer.families.rotary import rotary

    scaling = {"factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5}
    scaling["original_max_position_embeddings"] = 4096
    old = {"max_position_embeddings": 131072, "rope_theta": 50000.0, "rope_scaling": {**scaling, "type": "yarn"}}
    new = {"max_position_embeddings": 131072}
    new["rope_parameters"] = {**scaling, "rope_type": "yarn", "rope_theta": 50000.0}
    found = rotary(old, 64, 128, interleaved=True)
    assert found == rotary(new, 64, 128, interleaved=True)
    assert (found.kind, found.theta, found.factor) == ("yarn", 50000.0, 32.0)
    assert found.amplitude != 1.0


def test_a_part_of_the_mask_is_cut_from_the_whole() -> None:
    import torch
    from prlc.runtime.trainer.attention import Visibility

    visible = Visibility(torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 1, 1, 1]]))
    for window in (0, 2):
        whole = visible.mask(8, window)
        assert whole.shape == (2, 8, 8)
        assert whole.diagonal(dim1=1, dim2=2).all()
        assert torch.equal(visible.seen(3, 6, 8, window), whole[:, 3:6])
    assert visible.mask(8)[0].nonzero().tolist()[-2:] == [[7, 6], [7, 7]]  # padding sees padding alone
    assert visible.mask(8, 2)[1, 6].nonzero()[:, 0].tolist() == [5, 6]


def test_tensors_that_a_model_lacks_are_refused(tmp_path: Path) -> None:
    import torch
    from prlc.runtime.trainer.weights import _check_names
    from safetensors.torch import save_file

    model = {"model.layers.0.mlp.up_proj.weight": None, "model.norm.weight": None}

    def check(*names: str) -> None:
        save_file({name: torch.zeros(1) for name in names}, tmp_path / "model.safetensors")
        _check_names(model, tmp_path, layers=2)

    check(*model, "model.layers.2.eh_proj.weight", "model.layers.0.mlp.up_proj.weight_scale_inv")
    with pytest.raises(ValueError, match=r"missing \['model.norm.weight'\]"):
        check("model.layers.0.mlp.up_proj.weight")
    with pytest.raises(ValueError, match=r"unknown \['model.layers.1.mlp.up_proj.bias'\]"):
        check(*model, "model.layers.1.mlp.up_proj.bias")
