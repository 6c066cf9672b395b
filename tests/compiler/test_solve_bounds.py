"""What the search prunes by, held against the forecast and the ledgers: see prlc.compiler.search."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prlc.compiler.forecast.step import rollout_seconds, score, trainer_seconds
from prlc.compiler.layout import EngineLayout, TrainerLayout
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.resolve import Resolved
from prlc.compiler.search.assemble import assemble
from prlc.compiler.search.branch_and_bound import MORE_NODES
from prlc.compiler.search.engine_layouts import role_shapes
from prlc.compiler.search.objective import Choice, rank, step_limit
from prlc.compiler.search.trainer_layouts import layout, meshes, options
from prlc.compiler.search.trainer_side import INFINITE, TrainerSide
from prlc.schema.run import Objective

from tests.compiler import brute

MODELS = ("qwen3-30b-a3b", "gpt-oss-120b", "qwen3-32b", "deepseek-v3.2", "glm-5.1", "nemotron-3-super-120b-a12b")
SLACK = 1 + 1e-6  # the forecast bisects
CASES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(MODELS),
    "seq_len": st.sampled_from((8192, 65536, 131072)),
    "batch": st.sampled_from((32, 256, 2048)),
    "turns": st.sampled_from((1, 20, 60)),
}


def case(model: str, seq_len: int, batch: int, turns: int) -> Resolved:
    part = {
        "model": model,
        "algorithm": {"batch_size": batch},
        "sequence": {"seq_len": seq_len},
        "workload": {"turns": {"mean": turns}, "tool_time": {"mean": "1s"}},
        "inference": {"precision": "fp8"},
    }
    return brute.small(part, 64, 8, 4000 * brute.GIB)


def step(resolved: Resolved, mesh: TrainerLayout, engines: tuple[EngineLayout, ...]) -> float:
    placed = dataclasses.replace(mesh, nodes=tuple(range(100, 100 + len(mesh.nodes))))
    layout_ = assemble(resolved, placed, engines)
    return score(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout_)


def seconds_of(resolved: Resolved, mesh: TrainerLayout) -> float:
    return trainer_seconds(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, mesh)


def supply(resolved: Resolved, engines: tuple[EngineLayout, ...]) -> float:
    return rollout_seconds(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, engines)


def some_meshes(resolved: Resolved, nodes: int, draw: st.DataObject) -> list[TrainerLayout]:
    every = list(meshes(resolved.spec, resolved.facts, nodes, 8))
    picked = (
        draw.draw(st.lists(st.sampled_from(every), min_size=2, max_size=6, unique=True)) if len(every) > 1 else every
    )
    option = options(resolved.spec, "cuda")[0]
    return [layout(resolved.spec, tuple(range(nodes)), 8, mesh, option) for mesh in picked]


def some_engines(resolved: Resolved, draw: st.DataObject, more: tuple[int, int] = (0, 0)) -> tuple[EngineLayout, ...]:
    """Engines of drawn shapes and counts; `more`: parts added to (the first, the last) role."""
    spec, facts, gpu = resolved.spec, resolved.facts, resolved.gpu
    if draw.draw(st.booleans()):
        shapes = [draw.draw(st.sampled_from(list(role_shapes("engine", spec, facts, gpu, 8, 8))))]
    else:
        kinds = (list(role_shapes(role, spec, facts, gpu, 8, 8)) for role in ("prefill", "decode"))  # type: ignore[arg-type]
        shapes = [draw.draw(st.sampled_from(kind)) for kind in kinds]
    first, found = 0, []
    for place, shape in enumerate(shapes):
        count = draw.draw(st.integers(1, 8)) + (more[0] if place == 0 else 0)
        count += more[1] if place == len(shapes) - 1 else 0
        found.append(shape.times(count, first))
        first += count * shape.nodes
    return tuple(found)


@given(data=st.data(), nodes=st.integers(1, 32), **CASES)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_step_is_no_shorter_than_its_halves_and_follows_their_seconds(
    data: st.DataObject, nodes: int, **values: Any
) -> None:
    resolved = case(**values)
    engines, other = some_engines(resolved, data), some_engines(resolved, data)
    judged = []
    for mesh in some_meshes(resolved, nodes, data):
        whole = step(resolved, mesh, engines)
        assert whole * SLACK >= max(seconds_of(resolved, mesh), supply(resolved, engines))
        judged.append((seconds_of(resolved, mesh), whole, step(resolved, mesh, other)))
    judged.sort()
    for (_, first, first_other), (_, second, second_other) in itertools.pairwise(judged):
        assert first <= second * SLACK
        assert first_other <= second_other * SLACK


@given(data=st.data(), nodes=st.integers(1, 32), **CASES)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_of_engines_on_equally_many_nodes_the_faster_make_the_shorter_step(
    data: st.DataObject, nodes: int, **values: Any
) -> None:
    resolved = case(**values)
    mesh = some_meshes(resolved, nodes, data)[0]
    spec, facts, gpu = resolved.spec, resolved.facts, resolved.gpu
    shapes = [s for s in role_shapes("engine", spec, facts, gpu, 8, 4) if 8 % s.nodes == 0]
    judged = sorted(
        (supply(resolved, (one,)), step(resolved, mesh, (one,))) for one in (s.times(8 // s.nodes) for s in shapes)
    )
    for (_, first), (_, second) in itertools.pairwise(judged):
        assert first <= second * SLACK


@given(data=st.data(), nodes=st.integers(1, 32), **CASES)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_one_more_part_of_engines_never_hurts(data: st.DataObject, nodes: int, **values: Any) -> None:
    resolved = case(**values)
    mesh = some_meshes(resolved, nodes, data)[0]
    engines = some_engines(resolved, data)
    for place, role in enumerate(engines):
        each = len(role.nodes) // max(1, role.replicas) or 1
        per = role.replicas * each // len(role.nodes)  # replicas of the smallest part
        more = dataclasses.replace(
            role, nodes=tuple(range(200, 200 + len(role.nodes) + each)), replicas=role.replicas + max(1, per)
        )
        grown = (*engines[:place], more, *engines[place + 1 :])
        assert supply(resolved, grown) <= supply(resolved, engines) * SLACK
        assert step(resolved, mesh, grown) <= step(resolved, mesh, engines) * SLACK


@given(data=st.data(), nodes=st.integers(1, 32), **CASES)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_offload_and_recompute_cost_time_and_save_memory(data: st.DataObject, nodes: int, **values: Any) -> None:
    resolved = case(**values)
    spec = resolved.spec
    every = list(meshes(spec, resolved.facts, nodes, 8))
    mesh = data.draw(st.sampled_from(every))
    found = {o: layout(spec, tuple(range(nodes)), 8, mesh, o) for o in options(spec, "cuda")}

    def memory(one: TrainerLayout) -> int:
        return trainer_ledger(resolved.facts, resolved.gpu, one, spec.trainer.precision, spec.sequence.seq_len).total

    checkpoints = ("none", "selective", "full")
    for (offload, recompute), one in found.items():
        nexts = [("cpu", recompute)] + [
            (offload, c) for c in checkpoints if checkpoints.index(c) == checkpoints.index(recompute) + 1
        ]
        for option in nexts:
            other = found[option]  # type: ignore[index]
            assert seconds_of(resolved, one) <= seconds_of(resolved, other) * SLACK
            assert memory(other) <= memory(one)


@given(nodes=st.integers(1, 40), more=st.integers(1, 60), **CASES)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_trainer_on_more_nodes_is_at_most_twice_as_slow(nodes: int, more: int, **values: Any) -> None:
    side = TrainerSide(case(**values))
    few, many = side.floor(nodes, 8), side.floor(nodes + more, 8)
    if many < INFINITE:
        assert many <= few * MORE_NODES


@pytest.mark.parametrize(
    "objective",
    [
        Objective(step_time=60.0),
        Objective(minimize="step_time"),
        Objective(minimize="gpus"),
        Objective(minimize="gpu_hours_per_token"),
    ],
    ids=str,
)
def test_the_limit_lets_everything_pass_that_ranks_better(objective: Objective) -> None:
    resolved = brute.small({}, 3, 2, 140 * brute.GIB)
    found = list(itertools.islice(brute.choices(resolved), 0, 4000, 7))
    assert len(found) > 20
    for best, other in itertools.product(found, found):
        if rank(objective, other) < rank(objective, best):
            assert other.step <= step_limit(objective, best, other.gpus)


def test_ranks_differ() -> None:
    resolved = brute.small({}, 3, 2, 140 * brute.GIB)
    found: list[Choice] = list(brute.choices(resolved))
    assert len({rank(Objective(minimize="gpus"), c) for c in found}) == len(found)
