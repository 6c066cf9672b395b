"""The search finds what trying everything finds, on clusters small enough to try everything."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prlc.compiler.resolve import Resolved
from prlc.compiler.rules.example import merged
from prlc.compiler.rules.memory import hbm_fits
from prlc.compiler.search import branch_and_bound as search
from prlc.compiler.search.lawful import broken
from prlc.compiler.search.nearest import NoLayout
from prlc.compiler.search.solve import solve
from prlc.schema.plan import Ledger, LedgerEntry

from tests.compiler import brute

MODELS = ("qwen3-30b-a3b", "gpt-oss-20b", "qwen3-8b", "deepseek-v3.2", "kimi-k2.7-code", "nemotron-3-nano-30b-a3b")
OBJECTIVES = (
    {"minimize": "step_time"},
    {"minimize": "gpus"},
    {"minimize": "gpu_hours_per_token"},
    {"step_time": "20s"},
    {"step_time": "60s"},
    {"step_time": "5min"},
)
PINS: tuple[dict[str, Any], ...] = (
    {},
    {"trainer": {"parallel": {"cp": 2}}},
    {"trainer": {"parallel": {"dp_replicate": 1, "ep": 1}, "activation_checkpoint": "full"}},
    {"trainer": {"optimizer": {"offload": "cpu"}}},
    {"trainer": {"nodes": 1}},
    {"nodes": 2},
    {"inference": {"disaggregate": False, "tensor_parallel": 2}},
    {"inference": {"disaggregate": True, "prefill_nodes": 1}},
    {"inference": {"disaggregate": True, "decode_nodes": 1}},
    {"inference": {"expert_parallel": False}},
)


def same(resolved: Resolved) -> bool:
    """Assert that both agree; True when something fits."""
    wanted = brute.best(resolved)
    if wanted is None:
        with contextlib.suppress(NoLayout):  # or the rules alone stand in the way
            assert broken(resolved, solve(resolved).best.layout) is not None
        return False
    found = solve(resolved).best
    assert (found.counted, found.trainer, found.rollouts) == (wanted.counted, wanted.trainer, wanted.rollouts)
    assert found.layout.trainer == wanted.layout.trainer
    assert found.layout.engines == wanted.layout.engines
    return True


@given(
    model=st.sampled_from(MODELS),
    objective=st.sampled_from(OBJECTIVES),
    pins=st.sampled_from(PINS),
    shape=st.sampled_from(((1, 4), (2, 2), (3, 2), (4, 2), (6, 1), (2, 4))),
    memory=st.sampled_from((40, 80, 140, 400, 2000)),
    seq_len=st.sampled_from((4096, 16384, 65536)),
    batch=st.sampled_from((8, 32, 256)),
    turns=st.sampled_from((1, 8)),
)
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_the_search_equals_trying_everything(
    model: str,
    objective: dict[str, str],
    pins: dict[str, Any],
    shape: tuple[int, int],
    memory: int,
    seq_len: int,
    batch: int,
    turns: int,
) -> None:
    part = {
        "model": model,
        "objective": objective,
        "algorithm": {"batch_size": batch},
        "sequence": {"seq_len": seq_len},
        "workload": {"turns": {"mean": turns}},
    }
    same(brute.small(merged(part, pins), *shape, memory * brute.GIB))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_wide_engines_apart_over_five_nodes(objective: dict[str, str]) -> None:
    part = {
        "model": "glm-5.1",
        "objective": objective,
        "algorithm": {"batch_size": 64},
        "workload": {"turns": {"mean": 10}, "tool_time": {"mean": "2s"}},
        "trainer": {"activation_checkpoint": "full", "precision": "fp8"},
        "inference": {"precision": "fp8"},
    }
    assert same(brute.small(part, 5, 2, 4000 * brute.GIB))


def test_a_rule_that_excludes_the_fastest_engines_is_obeyed() -> None:
    part = {
        "model": "nemotron-3-super-120b-a12b",
        "algorithm": {"router_replay": False},
        "workload": {"turns": {"mean": 20}},
        "inference": {"disaggregate": True},
    }
    resolved = brute.small(part, 4, 4, 400 * brute.GIB)
    found = solve(resolved).best.layout
    assert broken(resolved, found) is None
    prefill, decode = found.engines
    assert prefill.tp == decode.tp  # hybrid models: PRL509


def test_where_the_rules_alone_stand_in_the_way_there_is_a_layout_to_report_them_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = brute.small({}, 3, 2, 140 * brute.GIB)
    free = solve(resolved).best
    entry = LedgerEntry(what="weights", phase="always", bytes=1, formula="1")
    full = Ledger(role="engine", resource="hbm", capacity=0, entries=(entry,))
    monkeypatch.setattr(search, "broken", lambda resolved, layout: next(hbm_fits(resolved, layout, (full,))))
    assert solve(resolved).best == free


def test_a_choice_is_the_same_twice() -> None:
    resolved = brute.small({"model": "qwen3-30b-a3b"}, 4, 4, 140 * brute.GIB)
    assert solve(resolved) == solve(resolved)
