"""Trainer meshes: what is legal, and that nothing else is enumerated."""

import pytest
from prlc.compiler.trainer_layouts import Mesh, mesh_faults, meshes

GLM = {"num_experts": 256, "heads": 64, "seq_len": 131072}


def test_glm_on_twelve_nodes_has_the_expert_answer() -> None:
    assert Mesh(dp_replicate=1, dp_shard=24, cp=4, ep=8) in meshes(world=96, **GLM)


def test_enumeration_is_legal_unique_and_deterministic() -> None:
    found = meshes(world=96, **GLM)
    assert found == meshes(world=96, **GLM)
    assert len(set(found)) == len(found)
    assert all(m.world == 96 and 256 % m.ep == 0 for m in found)


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        (Mesh(dp_replicate=1, dp_shard=24, cp=4, ep=12), "256 experts % ep 12 = 4"),
        (Mesh(dp_replicate=1, dp_shard=12, cp=4, ep=8), "must be 96 ranks"),
        (Mesh(dp_replicate=1, dp_shard=12, cp=8, ep=4), "ep 4 % cp 8"),
        (Mesh(dp_replicate=1, dp_shard=32, cp=3, ep=1), "64 attention heads % cp 3"),
    ],
)
def test_faults_name_the_numbers(mesh: Mesh, words: str) -> None:
    assert any(words in fault for fault in mesh_faults(mesh, world=96, **GLM))


def test_dense_model_has_no_expert_ranks() -> None:
    assert {m.ep for m in meshes(world=8, num_experts=0, heads=32, seq_len=4096)} == {1}
