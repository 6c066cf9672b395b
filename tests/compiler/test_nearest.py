"""Where nothing fits, the nearest miss is named, with what would help."""

from __future__ import annotations

import dataclasses
import re

import pytest
from prlc.compiler.resolve import Resolved
from prlc.compiler.rules.rule import Fragment
from prlc.compiler.search.nearest import NoLayout
from prlc.compiler.search.solve import solve

from tests.compiler import brute


def miss(resolved: Resolved) -> NoLayout:
    with pytest.raises(NoLayout) as caught:
        solve(resolved)
    assert caught.value.cure
    return caught.value


def test_a_trainer_that_fits_nowhere_is_named_with_its_largest_part() -> None:
    error = miss(brute.small({"model": "glm-5.1", "sequence": {"seq_len": 131072}}, 3, 8, 60 * brute.GIB))
    assert "no trainer mesh fits" in error.why
    assert "GiB of 60 GiB a GPU; the largest part is" in error.why


def test_the_miss_is_the_nearest() -> None:
    def needs(memory: int) -> int:
        error = miss(brute.small({"model": "qwen3-235b-a22b"}, 3, 8, memory * brute.GIB))
        found = re.search(r"needs (\d+) GiB", error.why)
        assert found is not None
        return int(found[1])

    assert 16 < needs(16) < 60
    assert abs(needs(18) - needs(16)) <= 2  # the card is larger, the nearest layout needs what it needed


def test_engines_that_hold_no_sample_are_named_with_their_pool() -> None:
    part: Fragment = {
        "model": "qwen3-32b",
        "sequence": {"seq_len": 32768},
        "trainer": {"parallel": {"cp": 8}},
        "inference": {"tensor_parallel": 1},
    }
    error = miss(brute.small(part, 3, 8, 70 * brute.GIB))
    assert "no engine layout leaves room for the KV cache of one sequence" in error.why
    assert "of 32,768 tokens" in error.why


def test_held_degrees_that_make_no_mesh() -> None:
    error = miss(brute.small({"trainer": {"parallel": {"dp_shard": 13, "cp": 1}}}, 3, 8, 140 * brute.GIB))
    assert "no mesh satisfies the pinned degrees" in error.why


def test_one_gpu_is_too_few() -> None:
    assert "one GPU" in miss(brute.small({"model": "qwen3-8b"}, 1, 1, 400 * brute.GIB)).why


def test_both_fit_but_not_together() -> None:
    part: Fragment = {"model": "qwen3-30b-a3b", "inference": {"disaggregate": True}}
    error = miss(brute.small(part, 2, 8, 140 * brute.GIB))
    assert "not both on 2 nodes" in error.why


def test_host_memory_is_named() -> None:
    resolved = brute.small({"trainer": {"optimizer": {"offload": "cpu"}}}, 2, 8, 140 * brute.GIB)
    node = dataclasses.replace(resolved.cluster.node, memory=200 * brute.GIB)
    small = dataclasses.replace(resolved, cluster=dataclasses.replace(resolved.cluster, node=node))
    assert "host memory" in miss(small).why
