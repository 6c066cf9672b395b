"""The spec's loss and optimizer become the trainer's."""

from __future__ import annotations

from typing import get_args

import pytest
from prlc.compiler.bundle.configs import policy_loss
from prlc.compiler.rules.example import BASE as EXAMPLE
from prlc.compiler.rules.example import merged
from prlc.compiler.search.trainer_layouts import options
from prlc.schema import codec
from prlc.schema.run import Algorithm, RunSpec
from prlc.schema.trainer import RATIO_BOUNDS, Loss, LossName

BASE = {"batch_size": 8, "group_size": 2, "max_off_policy_steps": 1}


@pytest.mark.parametrize("name", get_args(LossName))
def test_bounds_of_the_source_unless_said(name: str) -> None:
    algorithm = codec.decode(Algorithm, {**BASE, "loss": name})
    low, high = RATIO_BOUNDS[name]
    assert low < 1 < high
    assert policy_loss(algorithm) == Loss(name=name, ratio_low=low, ratio_high=high)  # type: ignore[arg-type]


def test_said_values_are_carried() -> None:
    algorithm = codec.decode(
        Algorithm, {**BASE, "loss": "dapo", "ratio_bounds": [0.7, 1.4], "kl_weight": 0.02, "stale_cap": 2}
    )
    assert policy_loss(algorithm) == Loss(name="dapo", ratio_low=0.7, ratio_high=1.4, kl_weight=0.02, stale_cap=2.0)


def test_muon_is_never_offloaded() -> None:
    for name, offloads in (("adamw", {"none", "cpu"}), ("muon", {"none"})):
        spec = codec.decode(RunSpec, merged(EXAMPLE, {"trainer": {"optimizer": {"name": name}}}))
        assert {offload for offload, _ in options(spec, "cuda")} == offloads
