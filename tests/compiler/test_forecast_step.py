"""The forecast: published drop rates, agreement of the tree with its score, and directions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from prlc import catalog
from prlc.compiler.forecast.loop import drop_rate, inflight_rollouts, lag, sigma_of, work
from prlc.compiler.forecast.step import (
    exposed_sync,
    forecast,
    needed_groups,
    rollout_seconds,
    score,
    step_time,
    trainer_seconds,
)
from prlc.compiler.layout import EngineLayout, Layout, TrainerLayout
from prlc.schema.codec import load
from prlc.schema.plan import Term
from prlc.schema.run import RunSpec, Spread

EXAMPLES = Path(__file__).parents[2] / "examples"
GLM_SPEC = load(RunSpec, EXAMPLES / "glm-5.1-swe-28x8-h200.yaml")
GLM = catalog.facts(catalog.model("glm-5.1"))
H200, CLUSTER = catalog.gpu("h200"), catalog.cluster("h200-28x8")
TINY_SPEC = load(RunSpec, EXAMPLES / "tiny-moe-cpu.yaml")
TINY = catalog.facts(catalog.model("tiny-moe"))
CPU, LOCAL = catalog.gpu("cpu"), catalog.cluster("local-cpu")

MESH = TrainerLayout(
    nodes=tuple(range(16, 28)),
    ranks_per_node=8,
    dp_replicate=1,
    dp_shard=24,
    cp=4,
    ep=8,
    offload="cpu",
    activation_checkpoint="full",
    micro_batch_tokens=32768,
)


def pool(role: Any, nodes: tuple[int, ...], replicas: int, **changed: Any) -> EngineLayout:
    ranks = len(nodes) // replicas * 8
    base = EngineLayout(
        role=role,
        nodes=nodes,
        replicas=replicas,
        tp=1,
        dp=ranks,
        ep=ranks,
        all2all="deepep_low_latency" if role == "decode" else "deepep_high_throughput",
        max_model_len=131072,
        max_num_seqs=256,
        max_num_batched_tokens=256 if role == "decode" else 8192,
        gpu_memory_utilization=0.9,
        kv_bytes=10**11,
        kv_tokens=900_000,
    )
    return dataclasses.replace(base, **changed)


def apart(prefill: int, decode: int) -> tuple[EngineLayout, EngineLayout]:
    first = tuple(range(prefill))
    return pool("prefill", first, prefill), pool("decode", tuple(range(prefill, prefill + decode)), 1)


def layout(engines: tuple[EngineLayout, ...], mesh: TrainerLayout = MESH, groups: int = 32) -> Layout:
    return Layout(
        target="slurm",
        nodes=28,
        trainer=mesh,
        engines=engines,
        orchestrator_node=27,
        router="vllm-router",
        router_node=0,
        store=None,
        router_replay=True,
        max_inflight_groups=groups,
    )


def tiny_layout() -> Layout:
    mesh = dataclasses.replace(
        MESH,
        nodes=(0,),
        ranks_per_node=1,
        dp_shard=1,
        cp=1,
        ep=1,
        offload="none",
        activation_checkpoint="none",
        micro_batch_tokens=128,
    )
    engine = pool(
        "engine", (0,), 1, dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0, max_num_batched_tokens=2048
    )
    return layout((engine,), mesh, 16)


def with_workload(**changed: Any) -> RunSpec:
    return dataclasses.replace(GLM_SPEC, workload=dataclasses.replace(GLM_SPEC.workload, **changed))


def with_algorithm(**changed: Any) -> RunSpec:
    return dataclasses.replace(GLM_SPEC, algorithm=dataclasses.replace(GLM_SPEC.algorithm, **changed))


def every(term: Term) -> list[Term]:
    return [term, *(below for part in term.terms for below in every(part))]


@pytest.mark.parametrize(("batches", "bound", "share"), [(4, 8, 0.116), (8, 16, 0.116), (2, 8, 0.030)])
def test_drop_rates_that_a_simulation_agrees_with(batches: int, bound: int, share: float) -> None:
    assert drop_rate(256 * batches, 256, bound, 1.0) == pytest.approx(share, abs=0.0005)


def test_drop_rate_at_its_edges() -> None:
    assert drop_rate(512, 256, 8, 0.0) == 0
    assert drop_rate(512, 256, 0, 1.0) == 0.5
    assert drop_rate(256, 256, 0, 1.0) == 0
    assert drop_rate(2048, 256, 8, 1.0) > drop_rate(1024, 256, 8, 1.0) > drop_rate(1024, 256, 16, 1.0)


def test_lag_and_wasted_work_that_a_simulation_agrees_with() -> None:
    """N/B = 4, K = 8, s = 1: 29 % of the generated tokens are dropped (discrete-event simulation)."""
    found = lag(4 * 256, 256, 8, 1.0)
    assert found.wasted == pytest.approx(0.29, abs=0.005)
    assert found.mean < 4 + 0.8  # survivors are biased short
    assert found.mean < found.p95 <= 8
    assert lag(512, 256, 8, 0.0).mean == pytest.approx(2.8)
    assert lag(4096, 256, 8, 0.0).mean == 8
    assert lag(512, 256, 0, 0.5).mean == 0


def test_rollouts_in_flight() -> None:
    assert inflight_rollouts(with_algorithm(max_off_policy_steps=1)) == 256
    assert inflight_rollouts(with_algorithm(max_inflight_groups=5)) == 80
    chosen = inflight_rollouts(GLM_SPEC)
    sigma = sigma_of(60, 200)
    assert 512 < chosen <= 1024
    assert drop_rate(chosen, 256, 8, sigma) <= 0.10 < drop_rate(chosen + 16, 256, 8, sigma)


def test_no_more_in_flight_than_keeps_the_trainer_busy() -> None:
    fast = layout(apart(12, 16), dataclasses.replace(MESH, nodes=(16,), dp_shard=2), groups=57)
    least = needed_groups(GLM_SPEC, GLM, H200, CLUSTER, fast)
    assert 16 <= least < 57
    calm = dataclasses.replace(fast, max_inflight_groups=least)
    assert score(GLM_SPEC, GLM, H200, CLUSTER, calm) == score(GLM_SPEC, GLM, H200, CLUSTER, fast)
    slow = layout(apart(1, 1), groups=57)
    assert needed_groups(GLM_SPEC, GLM, H200, CLUSTER, slow) == 57
    assert needed_groups(with_algorithm(max_inflight_groups=57), GLM, H200, CLUSTER, fast) == 57


def test_sigma_gives_the_percentile_back() -> None:
    sigma = sigma_of(60, 200)
    assert 2.71828182846 ** (1.6449 * sigma - sigma**2 / 2) == pytest.approx(200 / 60, rel=1e-6)
    assert sigma_of(60, None) == 0
    assert sigma_of(1, 1000) == pytest.approx(1.6449)


def test_a_rollout_never_exceeds_the_sequence() -> None:
    long = work(with_workload(turns=Spread(mean=1000)))
    assert long.length == pytest.approx(131072)
    assert long.turns < 1000
    assert work(with_workload(turns=Spread(mean=60))).length == pytest.approx(60 * 1150)
    cut = work(GLM_SPEC)  # its tail is longer than seq_len
    assert cut.length < 60 * 1150
    assert cut.length < cut.squares <= 131072


@pytest.mark.parametrize("case", ["glm", "glm together", "tiny"])
def test_tree_and_score_agree_and_every_term_is_explained(case: str) -> None:
    if case == "tiny":
        inputs: Any = (TINY_SPEC, TINY, CPU, LOCAL, tiny_layout())
    else:
        together = (pool("engine", tuple(range(16)), 8),)
        inputs = (GLM_SPEC, GLM, H200, CLUSTER, layout(together if case.endswith("together") else apart(8, 8)))
    tree = forecast(*inputs)
    assert tree.name == "step"
    assert tree.expected == score(*inputs) > 0
    named = {term.name: term.expected for term in tree.terms}
    assert list(named) == [
        "trainer step", "rollouts", "weight sync", "lag", "lag p95", "dropped", "wasted work", "in-flight groups",
        "trainer idle", "engines idle", "prefix hits",
    ]  # fmt: skip
    assert sum(term.expected for term in tree.terms[0].terms) == pytest.approx(named["trainer step"])
    assert tree.expected == pytest.approx(max(named["trainer step"], named["rollouts"]) + named["weight sync"])
    for term in every(tree):
        assert 0 <= term.low <= term.expected <= term.high
        assert term.formula
        assert term.source


def test_the_parts_that_solve_joins_are_those_of_the_score() -> None:
    whole = layout(apart(8, 8), groups=inflight_rollouts(GLM_SPEC) // 16)
    parts = max(
        trainer_seconds(GLM_SPEC, GLM, H200, CLUSTER, MESH),
        rollout_seconds(GLM_SPEC, GLM, H200, CLUSTER, whole.engines),
    )
    sync = exposed_sync(GLM_SPEC, GLM, H200, CLUSTER, whole)
    assert parts + sync == pytest.approx(score(GLM_SPEC, GLM, H200, CLUSTER, whole))


def test_more_engines_never_slow_the_rollouts() -> None:
    def seconds(prefill: int, decode: int) -> float:
        return rollout_seconds(GLM_SPEC, GLM, H200, CLUSTER, apart(prefill, decode))

    assert seconds(12, 8) <= seconds(8, 8) <= seconds(4, 8) <= seconds(2, 8)
    assert seconds(4, 8) < seconds(1, 8)


def test_longer_work_takes_longer() -> None:
    engines = apart(8, 8)

    def seconds(spec: RunSpec) -> float:
        return rollout_seconds(spec, GLM, H200, CLUSTER, engines)

    base = seconds(GLM_SPEC)
    assert seconds(with_workload(turns=Spread(mean=100, p95=200))) > base
    assert seconds(with_workload(output_tokens_per_turn=Spread(mean=500))) > base
    assert seconds(with_algorithm(batch_size=512)) > base


def test_a_small_kv_pool_lets_rollouts_wait() -> None:
    prefill, decode = apart(8, 8)
    tight = dataclasses.replace(decode, kv_tokens=140_000)
    seen = [step_time(GLM_SPEC, GLM, H200, CLUSTER, layout((prefill, d), groups=57)) for d in (decode, tight)]
    assert seen[0].engine.waiting == 0 < seen[1].engine.waiting
    assert seen[1].rollouts > seen[0].rollouts


def test_prefixes_that_no_cache_holds_are_prefilled_again() -> None:
    spec = dataclasses.replace(GLM_SPEC, inference=dataclasses.replace(GLM_SPEC.inference, kv_offload="none"))
    engines = (pool("engine", tuple(range(16)), 2),)
    tight = (dataclasses.replace(engines[0], kv_tokens=150_000),)
    seen = [step_time(spec, GLM, H200, CLUSTER, layout(e, groups=57)) for e in (engines, tight)]
    assert seen[0].engine.prefix_hit == pytest.approx(0.94)
    assert seen[1].engine.prefix_hit < 0.9
    assert seen[1].engine.working_set > seen[1].engine.pool
    assert seen[1].rollouts > seen[0].rollouts


def test_trainer_gains_from_ranks_and_pays_for_recompute_and_offload() -> None:
    def seconds(**changed: Any) -> float:
        return trainer_seconds(GLM_SPEC, GLM, H200, CLUSTER, dataclasses.replace(MESH, **changed))

    assert seconds(nodes=tuple(range(24)), dp_shard=48) < seconds()
    assert seconds(activation_checkpoint="none") < seconds()
    assert seconds(offload="none") < seconds()


def test_what_lies_beyond_the_data_says_so() -> None:
    prefill, decode = apart(8, 16)
    wide = dataclasses.replace(decode, dp=512, ep=512)
    found = step_time(GLM_SPEC, GLM, H200, CLUSTER, layout((prefill, wide)))
    assert any("decode at ep 512" in name for name in found.engine.extrapolated)
    near = step_time(GLM_SPEC, GLM, H200, CLUSTER, layout(apart(8, 8)))
    assert near.engine.extrapolated == ()
    assert any("dsa in training" in name for name in near.trainer.extrapolated)
    terms = {term.name: term for term in every(forecast(GLM_SPEC, GLM, H200, CLUSTER, layout((prefill, wide))))}
    assert terms["decode step"].extrapolated
    assert not terms["prefill of a turn"].extrapolated
    assert terms["indexer"].extrapolated


def test_without_staleness_the_whole_publication_shows() -> None:
    synchronous = step_time(with_algorithm(max_off_policy_steps=0), GLM, H200, CLUSTER, layout(apart(8, 8), groups=16))
    late = step_time(GLM_SPEC, GLM, H200, CLUSTER, layout(apart(2, 8)))
    assert synchronous.sync == pytest.approx(synchronous.write + synchronous.pause)
    assert late.rollouts - late.trainer.seconds > late.write
    assert late.sync == pytest.approx(late.pause)
