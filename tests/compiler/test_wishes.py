"""Of two wishes that exclude each other one wins and the price of the other is told; two held ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
from prlc.compiler.plan import plan
from prlc.compiler.rules.example import spec_text
from prlc.schema.plan import Decision, Plan

BIG: dict[str, Any] = {"model": "glm-4.5-air", "cluster": "h200-28x8", "nodes": 12}


def made(**part: Any) -> Plan:
    found, diagnostics = plan(spec_text({**BIG, **part}), "run.yaml")
    assert found is not None, [d.message for d in diagnostics if d.severity == "error"]
    return found


def decided(found: Plan, path: str) -> Decision:
    (decision,) = [d for d in found.decisions if d.path == path]
    return decision


def test_replay_goes_before_disaggregation_and_the_plan_says_what_that_costs() -> None:
    found = made(inference={"kv_offload": "none"})
    assert found.trainer.replay.enabled
    assert [r.kind for r in found.topology.roles if r.kind in ("prefill", "decode")] == []
    lost = decided(found, "inference.disaggregate")
    assert (lost.asked, lost.value) == ("auto", "false")
    assert "compat.yaml: replay-point-to-point" in lost.rule
    assert "price of doing without" in lost.alternatives[0].outcome
    assert "inference.disaggregate became false" in decided(found, "prefer").reason


def test_the_spec_may_turn_the_order_round() -> None:
    found = made(inference={"kv_offload": "none"}, prefer=["disaggregate", "router_replay"])
    assert not found.trainer.replay.enabled
    lost = decided(found, "algorithm.router_replay")
    assert (lost.asked, lost.value) == ("auto", "false")
    assert "mismatch KL" in lost.alternatives[0].outcome


def test_a_held_wish_wins_whatever_the_order() -> None:
    found = made(
        inference={"kv_offload": "none"},
        algorithm={"router_replay": True},
        prefer=["disaggregate", "router_replay"],
    )
    assert found.trainer.replay.enabled
    apart = made(inference={"kv_offload": "none", "disaggregate": True})
    assert not apart.trainer.replay.enabled
    assert {r.kind for r in apart.topology.roles} >= {"prefill", "decode"}


def test_a_held_store_without_nodes_for_both_sides_costs_replay() -> None:
    found = made(cluster="h200-1x8", nodes=1, model="qwen3-30b-a3b", inference={"kv_offload": "mooncake"})
    assert not found.trainer.replay.enabled
    assert "BlockObjectStoreError" in decided(found, "algorithm.router_replay").reason


def test_nothing_is_said_where_nothing_is_lost() -> None:
    assert decided(made(), "prefer").reason == "no two wishes exclude each other"


@pytest.mark.parametrize(
    ("inference", "code"),
    [
        ({"kv_offload": "none", "disaggregate": True}, "PRL342"),
        ({"kv_offload": "mooncake", "disaggregate": False}, "PRL801"),
        ({"router": "direct", "disaggregate": True}, "PRL801"),
    ],
)
def test_two_held_wishes_are_refused(inference: dict[str, Any], code: str) -> None:
    text = spec_text({**BIG, "algorithm": {"router_replay": True}, "inference": inference})
    found, diagnostics = plan(text, "run.yaml")
    assert found is None
    assert code in {d.code for d in diagnostics if d.severity == "error"}


def test_strict_makes_warnings_errors() -> None:
    part = {**BIG, "workload": {"environment": {"id": "swe"}}}
    assert plan(spec_text(part), "run.yaml")[0] is not None
    found, diagnostics = plan(spec_text({**part, "strict": True}), "run.yaml")
    assert found is None
    assert "PRL372" in {d.code for d in diagnostics if d.severity == "error"}
