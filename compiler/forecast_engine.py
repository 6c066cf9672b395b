"""Rollouts a second of the engines: a closed network of decode, prefill and tools with a fixed number in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast_loop import Work
from prlc.compiler.forecast_trainer import (
    DEEPEP_MEASURED,
    all_to_all_seconds,
    attention_flops,
    gemm_params,
    gemm_seconds,
)
from prlc.compiler.ledger_engine import engine_weights, kv_token_bytes

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import EngineLayout
    from prlc.schema.hardware import Gpu

PREFIX_HIT = 0.94  # of the prefix, found again where the cache is large enough: agent traffic, 91 to 97 %
MAX_PREFILL_USE = 0.9  # busy share of prefill where its queue is still finite
BANDWIDTH_SHARE = 0.75  # of peak memory bandwidth that decode kernels reach; an assumption
LAYER_GAP = 20e-6  # seconds of launches and norms of one layer of a decode step under CUDA graphs; an assumption
STEP_GAP = 2e-3  # seconds of sampling and scheduling of a decode step; an assumption
# seconds of a step on a CPU beside arithmetic: 2,259 to 3,206 tokens/s measured, tiny model, 64 requests at once
CPU_STEP = 0.025
SPARSE_FLOOR = 1.25e-3  # seconds of one sparse-attention layer in prefill, 4 to 1024 new tokens (GLM-5, H200)
DENSE_FLOOR = 60e-6  # the same of one dense-attention layer; an assumption
PREFILL_BATCH = 8  # turns that share one prefill step at most
# DeepEP low-latency dispatch + combine of one layer on H200, 128 tokens a rank, hidden 7168, top 8: seconds
LOW_LATENCY = {16: 288e-6, 32: 406e-6, 64: 472e-6}
BISECTIONS = 36


@dataclass(frozen=True, kw_only=True)
class EngineTime:
    """What the closed network settles at."""

    rollouts_per_second: float
    in_flight: float  # that fit into the KV pools
    batch: float  # sequences of one decode server
    decode_step: float  # s
    prefill_turn: float  # s of one server for one turn
    turns_per_second: float
    prefix_hit: float  # share of a turn's prefix that is found in a cache
    prefill_use: float  # busy share of the servers that prefill
    extrapolated: bool


def _exchange(facts: ModelFacts, engine: EngineLayout, tokens: float) -> float:
    """All-to-all seconds of one layer of a decode step."""
    if engine.ep == 1:
        return 0.0
    near = 16 if engine.ep <= 16 else 32 if engine.ep <= 32 else 64
    scale = max(0.5, tokens / 128) * facts.expert_hidden / 7168
    return LOW_LATENCY[near] * max(1.0, engine.ep / 64) * scale


def decode_seconds(
    facts: ModelFacts, gpu: Gpu, engine: EngineLayout, precision: str, batch: float, context: float, weights: int
) -> float:
    """One decode step of a server with `batch` sequences of `context` cached tokens; the slowest rank's."""
    experts = facts.num_experts
    touched = 1.0
    total = facts.total_params
    routed = facts.params.get("routed_experts", 0)
    ranks = engine.ep if engine.expert_parallel else engine.tp
    each = weights / max(1.0, (total - routed) / engine.tp + routed / ranks)  # bytes a parameter, about
    heavy = routed / ranks * each
    if experts:
        group = batch * (engine.dp if engine.expert_parallel else 1)
        touched = 1 - (1 - facts.top_k / experts) ** max(1.0, group)
    read = max(0.0, weights - heavy) + heavy * touched
    if facts.index_topk:
        index = facts.index_head_dim + facts.index_head_dim // 128 * 4
        rows = kv_token_bytes(facts, engine, precision) - facts.indexer_layers * index
        read += batch * (rows * min(context, facts.index_topk) + facts.indexer_layers * index * context)
    else:
        read += batch * context * kv_token_bytes(facts, engine, precision)
    dense, active = gemm_params(facts)
    rate = (gpu.fp8_dense if precision == "fp8" else None) or gpu.bf16_dense
    compute = 2 * batch * (dense + active) / engine.tp / rate
    if gpu.device == "cpu":
        return read / gpu.memory_bandwidth + compute + CPU_STEP
    moved = facts.moe_layers * _exchange(facts, engine, batch)
    reduced = facts.layers * 2 * 15e-6 if engine.tp > 1 else 0.0
    return (
        max(read / (BANDWIDTH_SHARE * gpu.memory_bandwidth), compute)
        + moved
        + reduced
        + (facts.layers * LAYER_GAP + STEP_GAP)
    )


def prefill_seconds(facts: ModelFacts, gpu: Gpu, engine: EngineLayout, precision: str, load: Work, hit: float) -> float:
    """Seconds of a server for the new tokens of one turn and for the share of its prefix that no cache holds."""
    new = load.prefill + (1 - hit) * load.prefix
    ranks = engine.tp
    rows = engine.max_num_batched_tokens * engine.ep * facts.top_k / max(1, facts.num_experts)
    flops = gemm_seconds(facts, gpu, precision, new, rows) / ranks
    flops += attention_flops(facts, new, load.prefix) / gpu.attention / ranks
    if gpu.device == "cpu":
        return flops + CPU_STEP
    floor = facts.layers * (SPARSE_FLOOR if facts.index_topk else DENSE_FLOOR)
    shared = max(1.0, min(PREFILL_BATCH, engine.max_num_batched_tokens / max(1.0, new)))
    moved = facts.moe_layers * all_to_all_seconds(new, facts, engine.ep)
    return max(flops + moved, floor / shared)


def engine_time(
    facts: ModelFacts,
    gpu: Gpu,
    engines: tuple[EngineLayout, ...],
    precision: str,
    load: Work,
    in_flight: int,
    stored: bool,
) -> EngineTime:
    """Bisect the decode batch until decode, prefill and tools together hold `in_flight` rollouts.

    stored: a store in host memory holds the prefixes that the KV pools cannot.
    """
    prefill, decode = engines[0], engines[-1]
    apart = len(engines) > 1
    fits = decode.servers * decode.kv_tokens / max(1.0, load.context)
    population = max(1.0, min(float(in_flight), fits))
    held = 1.0 if stored else min(1.0, prefill.servers * prefill.kv_tokens / (population * load.context))
    hit = PREFIX_HIT * held
    weights = engine_weights(facts, decode, precision)
    turn = prefill_seconds(facts, gpu, prefill, precision, load, hit)

    def at(batch: float) -> tuple[float, float, float]:
        """(turns a second, seconds of a decode step, rollouts that this takes)."""
        step = decode_seconds(facts, gpu, decode, precision, batch, load.context, weights)
        each = load.output * step / batch  # server seconds of one turn
        if apart:
            rate = min(decode.servers / each, MAX_PREFILL_USE * prefill.servers / turn)
        else:
            rate = decode.servers / (each + turn)
        return rate, step, decode.servers * batch + rate * (load.tool + turn)

    low, high = 1e-3, float(decode.max_num_seqs)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if at(middle)[2] < population:
            low = middle
        else:
            high = middle
    batch = (low + high) / 2
    alone = max(1.0, batch)  # one sequence alone decodes a token a step, whatever the mean
    rate, step, _ = at(batch)
    if batch < alone:
        step = decode_seconds(facts, gpu, decode, precision, alone, load.context, weights)
        rate = min(rate, population / (load.tool + turn + load.output * step))
    return EngineTime(
        rollouts_per_second=rate / load.turns,
        in_flight=population,
        batch=batch,
        decode_step=step,
        prefill_turn=turn,
        turns_per_second=rate,
        prefix_hit=hit,
        prefill_use=min(1.0, rate * turn / prefill.servers),
        extrapolated=decode.ep > 64 or prefill.ep > DEEPEP_MEASURED,
    )
