"""The formulas under the forecast: published kernel rows, limits and directions."""

from __future__ import annotations

import dataclasses
import math

import pytest
from prlc import catalog
from prlc.compiler.forecast.decode import (
    ServeShape,
    accepted_tokens,
    decode_cost,
    prefill_features,
    prefill_seconds,
    scaled,
)
from prlc.compiler.forecast.engine import cached_share, queue_wait, slowest
from prlc.compiler.forecast.loop import capped_moment
from prlc.compiler.forecast.network import all_to_all_seconds, copies, low_latency_seconds
from prlc.compiler.forecast.rates import interpolate, rates
from prlc.compiler.forecast.trainer import TrainShape, attention_flops, features, gemm_params, indexer_flops

H200, RATES = catalog.gpu("h200"), rates("h200", "h200")
V3, GLM = (catalog.facts(catalog.model(name)) for name in ("deepseek-v3", "glm-5.1"))
QWEN, HYBRID = (catalog.facts(catalog.model(name)) for name in ("qwen3-8b", "qwen3.5-397b-a17b"))
WIDE = ServeShape(tp=1, ep=64, servers=64, precision="fp8", low_latency=True)


@pytest.mark.parametrize(("ep", "micros"), [(8, 112.2), (16, 288.3), (32, 406.2), (64, 471.5)])
def test_low_latency_exchange_gives_the_measured_rows(ep: int, micros: float) -> None:
    """DeepEP on H200: 128 tokens, hidden 7168, top 8: dispatch + combine."""
    assert low_latency_seconds(RATES, 128, V3, ep) == pytest.approx(micros * 1e-6, rel=1e-6)


@pytest.mark.parametrize(("ep", "tokens", "millis"), [(8, 4096, 1.464), (16, 8192, 4.881), (32, 8192, 10.61)])
def test_normal_exchange_gives_the_measured_rows(ep: int, tokens: float, millis: float) -> None:
    """DeepEP normal on H200; 8,192 tokens are not in the table."""
    assert all_to_all_seconds(RATES, tokens, V3, ep) == pytest.approx(millis * 1e-3, rel=0.03)


def test_exchange_grows_with_its_ranks_and_costs_nothing_alone() -> None:
    assert all_to_all_seconds(RATES, 4096, V3, 1) == low_latency_seconds(RATES, 128, V3, 1) == 0
    seen = [all_to_all_seconds(RATES, 4096, V3, ep) for ep in (8, 16, 32, 64, 128, 256)]
    assert seen == sorted(seen)
    assert copies(8, 8) < 8  # some of a token's experts share a rank


def test_experts_touched_saturate() -> None:
    cost = decode_cost(V3, H200, RATES, dataclasses.replace(WIDE, ep=8, servers=8))
    one, all_of_them = cost.parts(1, 1000)["experts"], cost.parts(200, 1000)["experts"]
    # 8 tokens of the group touch 1 - (1 - 8/256)^8 of the experts
    assert one == pytest.approx(cost.expert_read * (1 - (1 - 8 / 256) ** 8))
    assert all_of_them == pytest.approx(max(cost.expert_read, 200 * cost.expert_compute), rel=1e-3)


@pytest.mark.parametrize("facts", [V3, GLM, QWEN, HYBRID], ids=lambda f: f.name)
@pytest.mark.parametrize("batch", [1, 7.5, 100])
def test_a_step_is_the_sum_of_its_parts(facts: catalog.ModelFacts, batch: float) -> None:
    for shape in (WIDE, ServeShape(tp=4, ep=1, precision="bf16"), ServeShape(tp=1, ep=8, servers=8, precision="fp8")):
        used = shape if facts.num_experts else dataclasses.replace(shape, ep=1, servers=1, low_latency=False)
        cost = scaled(decode_cost(facts, H200, RATES, used), RATES, facts, used)
        assert cost.seconds(batch, 20_000) == pytest.approx(sum(cost.parts(batch, 20_000).values()))


def test_sparse_attention_reads_its_top_k_and_scores_every_key() -> None:
    cost = decode_cost(GLM, H200, RATES, WIDE)
    short, long, longer = (cost.parts(8, context)["kv"] for context in (2048, 65536, 131072))
    assert long - short == pytest.approx(8 * (65536 - 2048) * cost.context)
    assert longer - long < long - short + 8 * 2048 * cost.context
    dense = decode_cost(V3, H200, RATES, WIDE)
    assert dense.context > 3 * cost.context  # a latent row against an indexer's key


def test_multi_token_prediction_yields_what_was_measured() -> None:
    """GLM-5.2, three drafts: 2.95 tokens a step; acceptances 0.80, then 0.65 and 0.52 together."""
    assert accepted_tokens(RATES, 3) == pytest.approx(2.95, abs=0.01)
    assert accepted_tokens(RATES, 0) == 1
    plain, drafted = (
        scaled(decode_cost(V3, H200, RATES, s), RATES, V3, s) for s in (WIDE, dataclasses.replace(WIDE, draft=1))
    )
    assert plain.seconds(8, 4000) < drafted.seconds(8, 4000) < 1.8 * plain.seconds(8, 4000)
    assert drafted.seconds(8, 4000) / drafted.accepted < plain.seconds(8, 4000)


def test_a_short_turn_of_sparse_attention_has_a_floor() -> None:
    """One GLM-5 layer takes 1.2 to 1.3 ms for 4 to 1,024 new tokens."""
    shape = ServeShape(tp=1, ep=8, servers=8, precision="fp8")

    def seconds(new: float) -> float:
        return prefill_seconds(prefill_features(GLM, H200, RATES, shape, new, 30_000), RATES, GLM)

    assert seconds(4) > 78 * 1.2e-3
    assert seconds(64) / seconds(4) < 1.5
    assert 1.7 < seconds(16384) / seconds(8192) < 2.3
    together = prefill_features(GLM, H200, RATES, shape, 64, 30_000, together=8)
    assert prefill_seconds(together, RATES, GLM) < 4 * seconds(64)


def test_sparse_attention_is_linear_its_indexer_is_not() -> None:
    assert attention_flops(GLM, 8192, 100_000) == 2 * attention_flops(GLM, 4096, 100_000)
    assert indexer_flops(GLM, 1000, 100_000) > 1.9 * indexer_flops(GLM, 1000, 50_000)
    assert attention_flops(QWEN, 8192, 0) == pytest.approx(4 * attention_flops(QWEN, 4096, 0))
    dense, routed = gemm_params(V3)
    assert dense + routed == pytest.approx(36.7e9, rel=0.02)  # 37 B active, embedding apart


SHAPE = TrainShape(tokens=100_000, micro_batches=4, context=40_000, shards=96, cp=4, ep=8, nodes=12, precision="fp8")


def test_training_terms_follow_their_quantities() -> None:
    base = features(GLM, H200, RATES, SHAPE)
    twice = features(GLM, H200, RATES, dataclasses.replace(SHAPE, tokens=200_000))
    assert twice["gemm"] == pytest.approx(2 * base["gemm"])
    assert twice["fsdp_inter"] == base["fsdp_inter"]  # a micro-batch gathers whatever it holds
    more = features(GLM, H200, RATES, dataclasses.replace(SHAPE, micro_batches=8))
    assert more["fsdp_inter"] == pytest.approx(2 * base["fsdp_inter"])
    wide = features(GLM, H200, RATES, dataclasses.replace(SHAPE, ep=32))
    assert wide["fsdp_inter"] < base["fsdp_inter"]  # what expert parallelism buys
    assert wide["exchange"] > base["exchange"]  # and costs
    longer = features(GLM, H200, RATES, dataclasses.replace(SHAPE, context=80_000))
    assert longer["indexer"] == pytest.approx(2 * base["indexer"])
    none = features(GLM, H200, RATES, dataclasses.replace(SHAPE, recompute="none"))
    assert all(none[name] <= base[name] for name in base)


def test_replicas_reduce_gradients_and_offload_moves_the_optimizer() -> None:
    held = features(GLM, H200, RATES, dataclasses.replace(SHAPE, replicas=2, offload=True))
    assert held["replicate"] > 0
    assert "optimizer" not in held
    room = RATES.trainer
    plain = features(GLM, H200, RATES, SHAPE)
    assert room["host_optimizer"] * held["host_optimizer"] > room["optimizer"] * plain["optimizer"]


def test_a_cache_below_its_working_set_falls_off_a_cliff() -> None:
    def share(pool: float) -> float:
        return cached_share(pool, 100, cycle=15, pause=10, sigma=0.4)

    assert share(100) == 1
    seen = [share(pool) for pool in (90, 80, 70, 60, 40, 20)]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 0.55 > 0.1 > seen[3]  # 10 % too small loses 40 % of the hits, 40 % nearly all
    assert cached_share(0, 100, 15, 10, 0.4) == 0
    # equal pauses: the pool turns over before any of them ends
    assert cached_share(90, 100, 15, 10, 0.0) == 0


def test_a_queue_grows_without_bound_and_with_its_spread() -> None:
    assert queue_wait(0.5, 4, 1.0, 0.0) < queue_wait(0.9, 4, 1.0, 0.0)
    assert queue_wait(0.9, 4, 1.0, 1.2) > queue_wait(0.9, 4, 1.0, 0.0)
    assert queue_wait(0.9, 40, 1.0, 0.0) < queue_wait(0.9, 4, 1.0, 0.0)
    # one server, constant service: half of M/M/1's rho / (1 - rho)
    assert queue_wait(0.5, 1, 1.0, 0.0) == pytest.approx(0.5)


def test_the_busiest_rank_has_more_than_the_mean() -> None:
    assert slowest(8, 1, 1.0) == 8
    assert slowest(8, 64, 1.0) > slowest(8, 8, 1.0) > slowest(8, 8, 0.5) > 8


def test_moments_of_a_capped_lognormal() -> None:
    mean, sigma = 4.0, 0.8
    assert capped_moment(mean, sigma, 1e9, 1) == pytest.approx(mean)
    assert capped_moment(mean, sigma, 1e9, 2) == pytest.approx(mean**2 * math.exp(sigma**2))
    assert capped_moment(mean, sigma, 6.0, 1) < mean
    assert capped_moment(mean, 0.0, 3.0, 2) == 9


def test_curves_keep_their_points_and_their_ends() -> None:
    xs, ys = (math.log(8), math.log(32)), (math.log(2.0), math.log(8.0))
    assert interpolate(xs, ys, 16) == pytest.approx(4.0)
    assert interpolate(xs, ys, 1) == pytest.approx(2.0)
    assert interpolate(xs, ys, 1000) == pytest.approx(8.0)


@pytest.mark.parametrize("name", catalog.names("kernels"))
def test_every_coefficient_has_a_source_and_fits_its_room(name: str) -> None:
    document = catalog.kernels(name)
    for room in (document.trainer, document.decode, document.prefill, document.network, document.loop):
        for key, coefficient in room.items():
            assert coefficient.source, key
            assert math.isfinite(coefficient.value)
    for band in document.bands.values():
        assert 0 < band.low <= 1 <= band.high
        assert band.source


def test_kernels_of_another_gpu_are_refused() -> None:
    with pytest.raises(catalog.CatalogError, match="kernels h200 are of GPU h200"):
        rates("h200", "h100")
