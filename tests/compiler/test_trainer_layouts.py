"""Trainer meshes: the expert answer is there, and exactly what is legal is enumerated."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prlc.compiler.search.trainer_layouts import meshes, options
from prlc.schema.codec import load
from prlc.schema.run import RunSpec

SPEC = load(RunSpec, Path(__file__).parents[2] / "examples" / "glm-5.1-swe-28x8-h200.yaml")


def model(**values: Any) -> Any:
    known = {"num_experts": 256, "heads": 64, "kv_heads": 1, "linear_layers": 0, "mamba_groups": 0}
    return SimpleNamespace(**{**known, **values})


def test_twelve_nodes_have_the_expert_answer() -> None:
    assert (1, 24, 4, 8) in list(meshes(SPEC, model(), 12, 8))


@pytest.mark.parametrize("nodes", [1, 2, 5, 12, 16])
@pytest.mark.parametrize(
    "facts",
    [model(), model(num_experts=0), model(num_experts=384, heads=48), model(heads=12, kv_heads=4),
     model(kv_heads=2, linear_layers=8, mamba_groups=2)],
)  # fmt: skip
def test_exactly_what_is_legal_is_enumerated_once(nodes: int, facts: Any) -> None:
    world = 8 * nodes
    legal = set()
    for replicate, shard, cp, ep in itertools.product(
        range(1, world + 1), range(1, world + 1), (1, 2, 4, 8), range(1, 65)
    ):
        if replicate * shard * cp != world or replicate * shard > SPEC.algorithm.batch_size:
            continue
        if (nodes if nodes > 1 else 8) % replicate:
            continue  # a replica is whole nodes, or a whole part of the one
        if facts.heads % cp or (facts.kv_heads % cp and cp % facts.kv_heads):
            continue
        if cp > 1 and facts.linear_layers and facts.mamba_groups % cp:
            continue
        if ep > 1 and (ep & (ep - 1) or not facts.num_experts or facts.num_experts % ep):
            continue
        if ep > 1 and (ep % cp or shard * cp % ep):
            continue
        legal.add((replicate, shard, cp, ep))
    found = list(meshes(SPEC, facts, nodes, 8))
    assert len(set(found)) == len(found)
    assert set(found) == legal
    assert found == list(meshes(SPEC, facts, nodes, 8))


def test_dense_model_has_no_expert_ranks() -> None:
    assert {ep for *_, ep in meshes(SPEC, model(num_experts=0), 1, 8)} == {1}


def test_options_go_from_fast_to_frugal() -> None:
    found = options(SPEC, "cuda")
    assert found[0] == ("none", "none")
    assert found[-1] == ("cpu", "full")
    assert len(found) == 6
