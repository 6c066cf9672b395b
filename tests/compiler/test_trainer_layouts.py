"""Trainer meshes: the expert answer is there, and nothing illegal is enumerated."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prlc.compiler.trainer_layouts import meshes
from prlc.schema.codec import load
from prlc.schema.run import RunSpec

GLM: Any = SimpleNamespace(num_experts=256, heads=64)
SPEC = load(RunSpec, Path(__file__).parents[2] / "examples" / "glm-5.1-swe-28x8-h200.yaml")


def test_twelve_nodes_have_the_expert_answer() -> None:
    assert (1, 24, 4, 8) in list(meshes(SPEC, GLM, 96))


def test_enumeration_is_legal_unique_and_deterministic() -> None:
    found = list(meshes(SPEC, GLM, 96))
    assert found == list(meshes(SPEC, GLM, 96))
    assert len(set(found)) == len(found)
    for replicate, shard, cp, ep in found:
        assert replicate * shard * cp == 96
        assert 256 % ep == 0
        assert (shard * cp) % ep == 0


def test_dense_model_has_no_expert_ranks() -> None:
    dense: Any = SimpleNamespace(num_experts=0, heads=32)
    assert {ep for *_, ep in meshes(SPEC, dense, 8)} == {1}
