"""What the trainer refuses, and that it says why."""

from __future__ import annotations

from typing import Any

import pytest
from prlc.schema.trainable import TRAINABLE, obstacles

GROUPED = {"model_type": "qwen3_moe", "num_attention_heads": 32, "num_key_value_heads": 4}


def why(config: dict[str, Any], cp: int = 1, precision: str = "bf16") -> tuple[str, ...]:
    return obstacles(config, cp=cp, precision=precision)


@pytest.mark.parametrize("kind", TRAINABLE)
def test_a_known_model_passes(kind: str) -> None:
    assert why({**GROUPED, "model_type": kind}, cp=4) == ()


@pytest.mark.parametrize("cp", [1, 2, 4, 8, 16, 32])
def test_key_heads_may_be_repeated(cp: int) -> None:
    assert why(GROUPED, cp=cp) == ()


def test_heads_that_do_not_split_are_refused() -> None:
    assert why(GROUPED, cp=3) == ("context parallelism (cp 3) over 32 query and 4 key heads",)
    assert why(GROUPED, cp=64) != ()
    assert why({**GROUPED, "num_attention_heads": 36, "num_key_value_heads": 12}, cp=18) != ()


def test_latent_attention_has_a_key_head_for_each_query_head() -> None:
    config = {"model_type": "deepseek_v3", "num_attention_heads": 128, "num_key_value_heads": 3}
    assert why(config, cp=128) == ()


def test_sparse_attention_gathers_latents_whatever_the_heads() -> None:
    assert why({"model_type": "glm_moe_dsa", "num_attention_heads": 64}, cp=3) == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "nemotron_h"}, "nemotron_h"),
        ({"rope_scaling": {"type": "longrope"}}, "longrope"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "fp8"}}, "128 x 128"),
    ],
)
def test_an_unknown_part_is_named(change: dict[str, Any], reason: str) -> None:
    found = why({**GROUPED, **change})
    assert len(found) == 1
    assert reason in found[0]


def test_fp8_blocks_of_a_checkpoint_are_no_obstacle_and_fp8_training_is() -> None:
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert why({**GROUPED, **blocks}) == ()
    assert why(GROUPED, precision="fp8") == ("fp8 training",)
