"""Time in which the engines supply one batch of rollouts. First order: see docs/method.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prlc.compiler.forecast_trainer import attention_flops
from prlc.compiler.ledger_engine import FP8_BYTES, WIDTH, kv_token_bytes
from prlc.compiler.ledger_host import rollout_tokens

if TYPE_CHECKING:
    from prlc.catalog import Cluster, Gpu, ModelFacts
    from prlc.compiler.layout import EngineLayout
    from prlc.schema.run import RunSpec

PREFIX_HIT = 0.94  # share of reusable prefix that is found again: published agentic traces, 91 to 97 %
STEP_GAP = 2e-3  # s of scheduling and sampling a decode step, an assumption
CPU_TOKENS = 2500.0  # tokens/s of one CPU server with the tiny model at 64 requests, measured 2,259 to 3,206
LAYER_EFFICIENCY = 0.4
# DeepEP low latency on H200, 128 tokens a rank: dispatch + combine (us) by ranks; 8 is taken as 16
LOW_LATENCY_US = {16: 288.0, 32: 406.0, 64: 472.0}


def all_to_all_seconds(engine: EngineLayout, facts: ModelFacts) -> tuple[float, bool]:
    """(dispatch + combine of a decode step over all layers, extrapolated?)."""
    if engine.ep == 1:
        return 0.0, False
    known = min((n for n in LOW_LATENCY_US if n >= engine.ep), default=64)
    return LOW_LATENCY_US[known] * 1e-6 * facts.moe_layers, engine.ep not in LOW_LATENCY_US


def decode_step_seconds(
    facts: ModelFacts,
    gpu: Gpu,
    engine: EngineLayout,
    precision: str,
    batch: float,
    context: float,
) -> float:
    """One decode step of a server with `batch` sequences: weights and KV read at HBM bandwidth, all-to-all, gap."""
    width = FP8_BYTES if precision == "fp8" else WIDTH[precision]
    routed = facts.params.get("routed_experts", 0)
    share = 1.0
    if facts.num_experts:
        tokens = batch * (engine.dp if engine.ep > 1 else 1)
        share = 1 - (1 - facts.top_k / facts.num_experts) ** max(1.0, tokens)
    experts = routed / (engine.ep if engine.ep > 1 else engine.tp) * share
    dense = (facts.total_params - routed - facts.params.get("embedding", 0)) / engine.tp
    row = kv_token_bytes(facts, engine, precision)
    cached = batch * context * row
    if facts.index_topk:  # sparse attention reads top-k rows, and all of the small indexer rows
        index = facts.indexer_layers * (facts.index_head_dim + 4)
        cached = batch * (min(context, facts.index_topk) * (row - index) + context * index)
    read = ((dense + experts) * width + cached) / gpu.memory_bandwidth
    return read + all_to_all_seconds(engine, facts)[0] + STEP_GAP


def prefill_rate(facts: ModelFacts, gpu: Gpu, engine: EngineLayout, precision: str, context: float) -> float:
    """New prompt tokens/s of all servers of the role."""
    rate = gpu.fp8_grouped if precision == "fp8" and gpu.fp8_grouped else gpu.bf16_grouped or gpu.bf16_dense
    weights = facts.active_params - facts.params.get("embedding", 0)
    per_token = 2 * weights / (rate * LAYER_EFFICIENCY) + attention_flops(facts, 1, context) / gpu.attention
    return engine.gpus / per_token


def rollout_parts(
    spec: RunSpec,
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    engines: tuple[EngineLayout, ...],
) -> dict[str, float]:
    """Seconds of one batch: prefill work, decode work, and both as the pools run side by side or share GPUs."""
    work, precision = spec.workload, spec.inference.precision
    batch, length = spec.algorithm.batch_size, rollout_tokens(spec)
    turns = min(work.turns.mean, length / max(1.0, work.output_tokens_per_turn.mean))
    written = batch * turns * work.output_tokens_per_turn.mean
    context = length / 2
    first, last = engines[0], engines[-1]
    # a pool smaller than the conversations alive (twice the batch) evicts prefixes before they are asked for again
    held = min(1.0, first.servers * first.kv_tokens / (2 * batch * context))
    missed = batch * turns * (work.new_tokens_per_turn.mean + (1 - PREFIX_HIT * held) * context)
    if gpu.device == "cpu":
        seconds = (written + 0.1 * missed) / CPU_TOKENS
        return {"prefill": 0.0, "decode": seconds, "all": seconds}
    prefill = missed / prefill_rate(facts, gpu, first, precision, context)
    alive = _alive(spec, last, context)
    step = decode_step_seconds(facts, gpu, last, precision, alive / last.servers, context)
    decode = written / max(1.0, alive) * step
    together = max(prefill, decode) if len(engines) > 1 else prefill + decode
    return {"prefill": prefill, "decode": decode, "all": together}


def _alive(spec: RunSpec, engine: EngineLayout, context: float) -> float:
    """Sequences that decode at once: what is in flight (twice the batch), what the KV pool and the server hold."""
    room = min(engine.max_num_seqs, max(1, math.floor(engine.kv_tokens / max(1.0, context))))
    return min(2.0 * spec.algorithm.batch_size, float(room * engine.servers))


def rollout_seconds(
    spec: RunSpec,
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    engines: tuple[EngineLayout, ...],
) -> float:
    """Seconds in which the engines supply one batch of rollouts."""
    return rollout_parts(spec, facts, gpu, cluster, engines)["all"]
