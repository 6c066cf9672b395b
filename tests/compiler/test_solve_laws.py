"""Laws of the whole search: more of a resource never makes the plan worse."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prlc.compiler.resolve import Resolved
from prlc.compiler.search.nearest import NoLayout
from prlc.compiler.search.objective import Choice
from prlc.compiler.search.solve import solve

from tests.compiler import brute

CASES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(("qwen3-30b-a3b", "gpt-oss-20b", "glm-4.5-air", "qwen3-235b-a22b", "deepseek-v3.2")),
    "nodes": st.integers(1, 8),
    "memory": st.sampled_from((24, 40, 80, 140)),
    "seq_len": st.sampled_from((8192, 32768)),
    "turns": st.sampled_from((1, 10)),
}


def case(model: str, nodes: int, memory: int, seq_len: int, turns: int) -> Resolved:
    part = {
        "model": model,
        "sequence": {"seq_len": seq_len},
        "workload": {"turns": {"mean": turns}, "tool_time": {"mean": "1s"}},
        "inference": {"precision": "fp8"},
    }
    return brute.small(part, nodes, 8, memory * brute.GIB)


def best(resolved: Resolved) -> Choice | None:
    try:
        return solve(resolved).best
    except NoLayout:
        return None


@given(more=st.sampled_from((1.05, 1.5)), **CASES)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_more_gpu_memory_never_makes_a_plan_worse(more: float, **values: Any) -> None:
    resolved = case(**values)
    few = best(resolved)
    many = best(dataclasses.replace(resolved, gpu=dataclasses.replace(resolved.gpu, memory=resolved.gpu.memory * more)))
    if few is not None:
        assert many is not None
        assert many.step <= few.step * (1 + 1e-6)


@given(**CASES)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_more_nodes_never_make_a_plan_worse(**values: Any) -> None:
    resolved = case(**values)
    few = best(resolved)
    cluster = dataclasses.replace(resolved.cluster, nodes=resolved.cluster.nodes + 1)
    many = best(dataclasses.replace(resolved, cluster=cluster))
    if few is not None:
        assert many is not None
        assert many.step <= few.step * (1 + 1e-6)


@given(seconds=st.sampled_from((20.0, 60.0, 300.0, 1200.0)), **CASES)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_step_time_is_met_with_the_fewest_gpus_or_missed_by_the_fastest_plan(seconds: float, **values: Any) -> None:
    resolved = case(**values)
    fastest = best(resolved)
    objective = dataclasses.replace(resolved.spec.objective, step_time=seconds, minimize=None)
    asked = dataclasses.replace(resolved, spec=dataclasses.replace(resolved.spec, objective=objective))
    found = best(asked)
    assert (found is None) == (fastest is None)
    if found is None or fastest is None:
        return
    if fastest.step > seconds * (1 + 1e-6):
        assert found.step <= fastest.step * (1 + 1e-6)
    elif fastest.step < seconds * (1 - 1e-6):
        assert found.step <= seconds * (1 + 1e-6)
        assert found.gpus <= fastest.gpus
