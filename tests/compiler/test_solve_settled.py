"""What is done to the choice after the search: ports, and no more rollouts in flight than the trainer needs."""

from __future__ import annotations

import dataclasses

from prlc.compiler.search.assemble import inflight_groups
from prlc.compiler.search.solve import solve

from tests.compiler import brute

PART = {"cluster": "h200-28x8", "nodes": 4, "algorithm": {"batch_size": 256, "max_off_policy_steps": 8}}


def test_a_busy_trainer_needs_fewer_groups_in_flight_than_the_rule_allows() -> None:
    slow = {**PART, "trainer": {"parallel": {"dp_shard": 1, "cp": 1, "ep": 1}, "nodes": 1}, "nodes": 1}
    resolved = brute.small(slow, 1, 8, 400 * brute.GIB)
    found = solve(resolved).best
    assert found.trainer > found.rollouts
    assert found.layout.max_inflight_groups < inflight_groups(resolved)
    assert found.layout.ports


def test_what_the_spec_holds_is_kept() -> None:
    resolved = brute.small(PART, 4, 8, 140 * brute.GIB)
    algorithm = dataclasses.replace(resolved.spec.algorithm, max_inflight_groups=40)
    held = dataclasses.replace(resolved, spec=dataclasses.replace(resolved.spec, algorithm=algorithm))
    assert solve(held).best.layout.max_inflight_groups == 40
