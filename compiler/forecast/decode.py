"""Seconds of a decode step and of a prefill: features by formula, times coefficients of a kernels file.

Experts touched by n tokens: E (1 - (1 - k/E)^n). Ranks of a wide group move in lockstep, so the step is the
slowest rank's. Terms: docs/methods/time.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast.network import all_to_all_seconds, low_latency_seconds
from prlc.compiler.forecast.trainer import RESIDUAL, attention_flops, gemm_params, indexer_flops, split_width

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates
    from prlc.schema.hardware import Gpu

INDEXER_ROW = 132  # bytes of an indexer's key: 128 fp8 values and a scale (vLLM flashmla_sparse)
SPARSE_ROW = 656  # bytes of a token in FlashMLA-sparse's fp8 cache
LINEAR_STATE = 128 * 128 * 4  # bytes of one recurrent head's state, read and written each token
STREAM = 2  # bytes of an activation
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int4": 0.56}


@dataclass(frozen=True, kw_only=True)
class ServeShape:
    """One engine replica: `tp` ranks a server, `ep` ranks that share the experts (1: experts split over tp)."""

    tp: int
    ep: int
    precision: str
    servers: int = 1  # data-parallel servers whose tokens meet in the experts
    intra: float = 340e9  # bytes/s a GPU
    low_latency: bool = False  # DeepEP's decode kernels, else gathers and reductions inside one node
    draft: int = 0  # tokens that multi-token prediction proposes
    framework: str = "vllm"


@dataclass(frozen=True, kw_only=True)
class DecodeCost:
    """A decode step of one server as a function of its sequences: all that does not depend on them, once.

    Raw from `decode_cost`: seconds at the GPU's own rates, and counts. From `scaled`: seconds.
    """

    step: float
    layer: float
    reduce_start: float
    dense_read: float
    dense_compute: float  # a token
    expert_read: float  # of all local experts
    expert_compute: float  # a token of one server, group included
    miss: float  # 1 - top_k / experts
    group: float  # servers whose tokens meet in the experts
    context: float  # a cached token
    sparse: float  # a cached token that sparse attention reads
    sparse_limit: float  # how many it reads at most
    state: float  # recurrent state of a sequence
    sequence: float  # a token
    reduce: float  # a token
    exchange_start: float
    exchange: float  # a token
    kernel: str  # coefficient of the exchange: exchange (DeepEP) or gather (collectives)
    verified: float  # tokens that a step computes for a sequence
    accepted: float  # tokens that it yields
    exact: float  # s that no coefficient touches

    def parts(self, sequences: float, context: float) -> dict[str, float]:
        """Coefficient -> its share of a step with `sequences` of `context` cached tokens on each server."""
        tokens = sequences * self.verified
        touched = 1 - self.miss ** max(1.0, tokens * self.group) if self.expert_read else 0.0
        return {
            "step": self.step,
            "layer": self.layer,
            "reduce_start": self.reduce_start,
            "dense": max(self.dense_read, tokens * self.dense_compute),
            "experts": max(self.expert_read * touched, tokens * self.expert_compute),
            "kv": sequences * (context * self.context + self.state)
            + tokens * min(context, self.sparse_limit) * self.sparse,
            "sequence": tokens * self.sequence,
            "reduce": tokens * self.reduce,
            self.kernel: self.exchange_start + tokens * self.exchange,
        }

    def seconds(self, sequences: float, context: float) -> float:
        """The sum of `parts`, without the dictionary: this is evaluated most."""
        tokens = sequences * self.verified
        step = self.exact + max(self.dense_read, tokens * self.dense_compute)
        if self.expert_read:
            read = self.expert_read * (1 - self.miss ** max(1.0, tokens * self.group))
            step += max(read, tokens * self.expert_compute)
        if self.sparse:
            step += tokens * min(context, self.sparse_limit) * self.sparse
        return (
            step
            + tokens * (self.sequence + self.reduce + self.exchange)
            + sequences * (context * self.context + self.state)
        )


def decode_cost(facts: ModelFacts, gpu: Gpu, rates: Rates, s: ServeShape) -> DecodeCost:
    """The raw cost of a decode step; times are seconds at the GPU's rates."""
    width = WEIGHT_BYTES[s.precision]
    dense, routed = gemm_params(facts)
    head = float(facts.vocab * facts.hidden)
    whole = 0.0  # down-projections of latent attention and indexers stand on every rank
    if facts.kv_lora_rank:
        whole = facts.layers * facts.hidden * ((facts.q_lora_rank or 0) + facts.kv_lora_rank + facts.rope_dim)
    whole += facts.params.get("indexer", 0) + facts.params.get("router", 0)
    split = max(0.0, dense - head - whole)
    read = (whole + split / s.tp) * (width if s.precision != "int4" else 2.0) + head / s.tp * max(2.0, width)
    all_experts = facts.params.get("routed_experts", 0)
    ranks = max(s.ep, s.tp) if s.ep > 1 else s.tp
    rate = (gpu.fp8_dense if s.precision == "fp8" else None) or gpu.bf16_dense
    grouped = (gpu.fp8_grouped if s.precision == "fp8" else None) or gpu.bf16_grouped or gpu.bf16_dense
    group = float(s.servers)
    memory, stream = gpu.memory_bandwidth, facts.hidden * STREAM
    kv_width = 2 if s.precision != "fp32" else 4
    context, sparse, limit = 0.0, 0.0, 0.0
    if facts.index_topk:
        context = facts.indexer_layers * INDEXER_ROW / memory
        sparse, limit = facts.attention_layers * SPARSE_ROW / memory, float(facts.index_topk)
    elif facts.kv_lora_rank:
        context = facts.attention_layers * (facts.kv_lora_rank + facts.rope_dim) * kv_width / memory
    else:
        shards = min(s.tp, facts.kv_heads)
        row = facts.kv_heads * (facts.head_dim + facts.v_head_dim) * kv_width / shards
        context = facts.attention_layers * row / memory
        if facts.sliding_window:
            sparse = (facts.layers - facts.attention_layers - facts.linear_layers) * row / memory
            limit = float(facts.sliding_window)
    start, exchange = 0.0, 0.0
    if s.servers > 1 and s.ep > 1:
        if s.low_latency:
            start = facts.moe_layers * low_latency_seconds(rates, 0.0, facts, s.ep)
            exchange = facts.moe_layers * (low_latency_seconds(rates, 1.0, facts, s.ep)) - start
        else:  # gather of all tokens, reduction of all results
            start = facts.moe_layers * 2 * rates.network["collective_start"]
            exchange = facts.moe_layers * 2 * group * stream / s.intra
    verified = 1.0 + s.draft
    return DecodeCost(
        step=1.0,
        layer=float(facts.layers),
        reduce_start=2.0 * facts.layers if s.tp > 1 else 0.0,
        dense_read=read / memory,
        dense_compute=2 * (whole + (split + head) / s.tp) / rate,
        expert_read=all_experts / ranks * width / memory,
        expert_compute=2 * routed * group / ranks / grouped,
        miss=1 - facts.top_k / facts.num_experts if facts.num_experts else 1.0,
        group=group,
        context=context,
        sparse=sparse,
        sparse_limit=limit,
        state=2 * facts.linear_layers * facts.mamba_heads * LINEAR_STATE / s.tp / memory,
        sequence=1.0,
        reduce=2 * facts.layers * stream * 2 * (1 - 1 / s.tp) / s.intra if s.tp > 1 else 0.0,
        exchange_start=start,
        exchange=exchange,
        kernel="exchange" if s.low_latency else "gather",
        verified=verified,
        accepted=accepted_tokens(rates, s.draft),
        exact=0.0,
    )


def accepted_tokens(rates: Rates, draft: int) -> float:
    """Tokens a step with `draft` proposals: 1 + a + a b + ..., acceptances falling with the position."""
    total, product = 1.0, 1.0
    for position in range(draft):
        product *= rates.decode["acceptance"] * rates.decode["acceptance_fall"] ** position
        total += product
    return total


def coefficient(room: Mapping[str, float], name: str, framework: str) -> float:
    """The coefficient of a framework, else the common one."""
    own = room.get(f"{name}@{framework}")
    return room[name] if own is None else own


def layer_floor(room: Mapping[str, float], facts: ModelFacts, framework: str) -> float:
    """Seconds of launches of one layer: the framework's, and what sparse or recurrent attention adds."""
    floor = coefficient(room, "layer", framework)
    if facts.index_topk:
        floor += room["layer_sparse"]
    if facts.linear_layers:
        floor += room["layer_linear"] * facts.linear_layers / facts.layers
    return floor


def scaled(raw: DecodeCost, rates: Rates, facts: ModelFacts, s: ServeShape) -> DecodeCost:
    """The cost in seconds."""
    room = rates.decode

    def of(name: str) -> float:
        return coefficient(room, name, s.framework)

    balance = room["expert_balance"] if s.ep > 1 else 1.0
    step, layer = of("step"), raw.layer * layer_floor(room, facts, s.framework)
    reduce_start, exchange_start = raw.reduce_start * of("reduce_start"), raw.exchange_start * of(raw.kernel)
    return dataclasses.replace(
        raw,
        step=step,
        layer=layer,
        reduce_start=reduce_start,
        dense_read=raw.dense_read * of("dense"),
        dense_compute=raw.dense_compute * of("dense"),
        expert_read=raw.expert_read * of("experts") * balance,
        expert_compute=raw.expert_compute * of("experts") * balance,
        context=raw.context * of("kv"),
        sparse=raw.sparse * of("kv"),
        state=raw.state * of("kv"),
        sequence=of("sequence"),
        reduce=raw.reduce * of("reduce"),
        exchange_start=exchange_start,
        exchange=raw.exchange * of(raw.kernel),
        exact=step + layer + reduce_start + exchange_start,
    )


def prefill_features(
    facts: ModelFacts, gpu: Gpu, rates: Rates, s: ServeShape, new: float, prefix: float, together: float = 1.0
) -> dict[str, float]:
    """Term -> seconds at the GPU's rates, or a count, of a prefill of `new` tokens after `prefix` cached ones.

    `together` such turns share one forward: weights are read and layers launched once.
    """
    tokens = new * together
    dense, routed = gemm_params(facts)
    head = float(facts.vocab * facts.hidden)
    fp8 = s.precision == "fp8"
    width, memory = WEIGHT_BYTES[s.precision], gpu.memory_bandwidth
    rate = (gpu.fp8_dense if fp8 else None) or gpu.bf16_dense
    stream = facts.hidden * STREAM
    found = {
        "layer": float(facts.layers),
        # only the last position passes the head
        "dense": max(2 * tokens * (dense - head) / s.tp / rate, (dense - head) * width / s.tp / memory),
        "attention": attention_flops(facts, new, prefix) * together / s.tp / gpu.attention,
        # the residual stream and the norms are whole on every rank
        "elementwise": 2 * tokens * facts.layers * (RESIDUAL * facts.hidden + split_width(facts) / s.tp) / memory,
    }
    if facts.index_topk:
        found["indexer"] = indexer_flops(facts, new, prefix) * together / rate
    if facts.num_experts:
        group = tokens * s.servers
        ranks = max(s.ep, s.tp) if s.ep > 1 else s.tp
        rows = group * facts.top_k / facts.num_experts
        grouped = (gpu.fp8_grouped if fp8 else None) or gpu.bf16_grouped or gpu.bf16_dense
        grouped *= rates.curve("grouped_fp8" if fp8 else "grouped_bf16", rows)
        touched = 1 - (1 - facts.top_k / facts.num_experts) ** max(1.0, group)
        read = facts.params.get("routed_experts", 0) * width * touched / ranks / memory
        found["grouped"] = max(read, 2 * group * routed / ranks / grouped)
        found["routing"] = (
            2 * facts.moe_layers * facts.top_k
            * (group / s.ep * (2 * facts.expert_hidden + 3 * facts.moe_intermediate) if s.ep > 1
               else tokens * (2 * facts.expert_hidden + 3 * facts.moe_intermediate / s.tp))
            / memory
        )  # fmt: skip
        if s.servers > 1 and s.ep > 1:
            found["exchange"] = facts.moe_layers * all_to_all_seconds(rates, tokens, facts, s.ep)
    if s.tp > 1:
        found["reduce"] = 2 * facts.layers * tokens * stream * 2 * (1 - 1 / s.tp) / s.intra
    return found


def prefill_seconds(found: Mapping[str, float], rates: Rates, facts: ModelFacts, framework: str = "vllm") -> float:
    """Seconds of a prefill; sparse attention has a floor a layer whatever its tokens (GLM-5 module rows)."""
    room = rates.prefill
    total = sum(coefficient(room, name, framework) * value for name, value in found.items())
    if facts.index_topk:
        own = sum(room[name] * found[name] for name in ("dense", "attention", "indexer"))
        total += max(0.0, room["layer_sparse"] * facts.layers - own)
    return total
