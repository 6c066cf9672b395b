"""Seconds of one optimizer step: physical quantities by formula, times coefficients of a kernels file.

`features` gives each term as seconds at the GPU's own rates (or as a count); a step is the sum of coefficient x
feature. Terms: docs/methods/time.md. Sources of the passes: torchtitan 0.3.0 and prime-rl's activation checkpointing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast.network import all_to_all_seconds
from prlc.compiler.ledger.widths import kv_width

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.loop import Work
    from prlc.compiler.forecast.rates import Rates
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.run import RunSpec

ADAM_BYTES = 28  # read and written for one parameter: fp32 weight, gradient and both moments
# forwards of GEMMs, of attention, and exchanges of experts: forward, backward (2 or 2.5), recompute
PASSES = {"none": (3.0, 3.5, 2.0), "selective": (3.5, 3.5, 2.0), "full": (4.0, 4.5, 3.0)}
LORA_SAVES = 1.0  # a frozen weight has no weight gradient


@dataclass(frozen=True, kw_only=True)
class TrainShape:
    """What one rank does in one step."""

    tokens: float  # of one rank, after the cp split and before tp and pp
    micro_batches: int
    context: float  # mean tokens before a token in its sequence, x 2: sum(length^2) / sum(length)
    shards: int  # ranks that share parameters and state (dp_shard x cp)
    cp: int = 1
    ep: int = 1
    tp: int = 1
    pp: int = 1
    virtual: int = 1  # pipeline stages of one rank
    nodes: int = 1  # that one group of shards spans
    replicas: int = 1  # groups of shards that reduce gradients with each other (HSDP)
    intra: float = 340e9  # bytes/s a GPU
    inter: float = 40e9
    precision: str = "bf16"
    recompute: str = "full"
    offload: bool = False
    lora: bool = False
    fused_head: bool = True  # head and loss in chunks, recomputed in the backward
    compiled: bool = True
    attention: str = "attention"  # coefficient of its kernels
    stash_offload: bool = False  # layer inputs go to host memory and back
    sharded_gathers: bool = True  # FSDP gathers weights; False: only gradients are reduced (ZeRO-1)


def gemm_params(facts: ModelFacts) -> tuple[float, float]:
    """Parameters that one token multiplies: (dense ones with the head, routed ones)."""
    routed = facts.params.get("routed_experts", 0) * facts.top_k / max(1, facts.num_experts)
    head = facts.vocab * facts.hidden if facts.tied else 0
    return facts.active_params - routed - facts.params.get("embedding", 0) + head, routed


def attention_flops(facts: ModelFacts, new: float, prefix: float) -> float:
    """Forward FLOPs of attention of `new` tokens after `prefix` cached ones, all layers, causal, indexers apart.

    Sparse attention is linear in index_topk; sliding layers in the window.
    """
    context = prefix + new / 2
    if facts.index_topk:
        width = facts.heads * (2 * (facts.kv_lora_rank or 0) + facts.rope_dim)
        return 2 * new * min(context, float(facts.index_topk)) * width * facts.attention_layers
    width = facts.heads * (facts.head_dim + facts.v_head_dim)
    total = 2 * new * context * width * facts.attention_layers
    if facts.sliding_window:
        sliding = facts.layers - facts.attention_layers - facts.linear_layers
        total += 2 * new * min(context, float(facts.sliding_window)) * width * sliding
    return total


def indexer_flops(facts: ModelFacts, new: float, prefix: float) -> float:
    """Forward FLOPs of sparse attention's indexers: they score every key before a token."""
    return 2 * new * (prefix + new / 2) * facts.index_heads * facts.index_head_dim * facts.indexer_layers


RESIDUAL = 8  # times that a layer moves the residual stream: two norms, two additions, casts


def split_width(facts: ModelFacts) -> float:
    """Elements a token that one layer reads and writes beside the residual stream, outside GEMMs and routing: heads
    and the intermediate of dense and shared experts, mean over layers."""
    attention = 2 * facts.heads * facts.head_dim + 2 * facts.kv_heads * facts.head_dim
    wide = facts.dense_layers * facts.intermediate + facts.moe_layers * facts.shared_intermediate
    return attention + 3 * wide / max(1, facts.layers)


def features(facts: ModelFacts, gpu: Gpu, rates: Rates, s: TrainShape) -> dict[str, float]:
    """Term -> seconds at the GPU's rates, or a count (launch)."""
    dense, routed = gemm_params(facts)
    head = float(facts.vocab * facts.hidden)
    gemm_passes, attention_passes, moves = PASSES[s.recompute]
    fp8 = s.precision == "fp8"
    rate = (gpu.fp8_dense if fp8 else None) or gpu.bf16_dense
    ways = s.tp * s.pp
    tokens = s.tokens
    weight_passes = gemm_passes - LORA_SAVES if s.lora else gemm_passes
    memory = gpu.memory_bandwidth
    head_passes = (4.0 if s.fused_head else 3.0) - (LORA_SAVES if s.lora else 0)
    context = max(1.0, s.context)
    scores = attention_flops(facts, context, 0.0) / context  # a token
    moved = 2 * tokens * facts.layers * (RESIDUAL * facts.hidden + split_width(facts))
    found = {
        "gemm": 2 * tokens * (dense - head) * weight_passes / rate / ways,
        # the head stays bf16; a fused one is recomputed in its backward
        "head": 2 * tokens * head * head_passes / gpu.bf16_dense / ways,
        s.attention: scores * tokens * attention_passes / gpu.attention / ways,
        # fp32 logits: written, normalised, differentiated; policy losses also read their entropy
        "logits" if s.fused_head else "logits_plain": tokens * facts.vocab * 16 / memory / ways,
        "elementwise": moved * (attention_passes - 0.5) / memory / ways,
        "launch": facts.layers * s.micro_batches * gemm_passes / s.pp,
    }
    if s.fused_head:
        found["step"] = 1.0
    if not s.compiled:
        found["eager"] = found["elementwise"]
    if fp8:
        found["quantize"] = found["elementwise"]
    if s.stash_offload:
        found["stash"] = 2 * 2 * tokens * facts.hidden * facts.layers / ways
    if s.lora:
        found["lora"] = found["elementwise"]
    if facts.index_topk:
        found["indexer"] = indexer_flops(facts, context, 0.0) / context * tokens * (attention_passes - 1) / rate / ways
    if facts.linear_layers:
        # a recurrent layer's chunked scan moves its state and its inputs; priced as memory traffic
        found["linear"] = (
            2 * tokens * facts.linear_layers * 12 * facts.hidden * attention_passes / gpu.memory_bandwidth / ways
        )
    if facts.num_experts:
        balance = rates.trainer["imbalance"] if s.ep > 1 else 1.0
        rows = tokens / s.micro_batches * s.ep * facts.top_k / facts.num_experts
        grouped = (gpu.fp8_grouped if fp8 else None) or gpu.bf16_grouped or gpu.bf16_dense
        grouped *= rates.curve("grouped_fp8" if fp8 else "grouped_bf16", rows)
        found["grouped"] = 2 * tokens * routed * weight_passes / grouped * balance / ways
        found["routing"] = (
            2 * tokens * facts.moe_layers * facts.top_k * (2 * facts.expert_hidden + 3 * facts.moe_intermediate)
            * gemm_passes / gpu.memory_bandwidth * balance / ways
        )  # fmt: skip
        found["exchange"] = (
            moves
            * facts.moe_layers
            * balance
            * s.micro_batches
            * all_to_all_seconds(rates, tokens / s.micro_batches, facts, s.ep)
            / s.pp
            if gpu.device != "cpu"
            else 0.0
        )
    found.update(_traffic(facts, gpu, s))
    return found


def _traffic(facts: ModelFacts, gpu: Gpu, s: TrainShape) -> dict[str, float]:
    """Collectives and the optimizer."""
    width = 4 if s.precision == "fp32" or gpu.device == "cpu" else 2
    routed = facts.params.get("routed_experts", 0)
    ways = s.tp * s.pp
    share = 1 - 1 / s.shards
    moved = (facts.total_params - routed) * share / ways
    moved += routed / s.ep * max(0.0, 1 - s.ep / s.shards) / ways
    each = 2 * width if s.lora else 2 * width + 4
    trips = s.micro_batches
    if not s.sharded_gathers:
        each, trips = width + 4, 1
    gathers = trips * moved * each
    found = {"fsdp_inter" if s.nodes > 1 else "fsdp_intra": gathers / (s.inter if s.nodes > 1 else s.intra)}
    if s.replicas > 1:
        reduced = 2 * (1 - 1 / s.replicas) * 4 * facts.total_params / s.shards / ways
        found["replicate"] = reduced / s.inter
    if s.cp > 1:
        passes = PASSES[s.recompute][2]
        rows = s.tokens * s.cp * kv_width(facts) * width * facts.attention_layers * passes / ways
        found["context"] = rows * (1 - 1 / s.cp) / s.intra
    if s.tp > 1:
        # two reductions forward and two backward a layer, each over the activations of the micro-batch
        found["tensor"] = 4 * 2 * s.tokens * facts.hidden * width * facts.layers * (1 - 1 / s.tp) / s.intra / s.pp
    local = facts.total_params / s.shards / ways
    trained = 0.02 if s.lora else 1.0
    if s.offload:
        found["host_optimizer"] = local * ADAM_BYTES * trained
        # FSDP2 keeps fp32 shards and gradients on the host: up for each gather, down after each reduction
        found["host_copies"] = s.micro_batches * local * (2 * 4 + 4 * trained)
    else:
        found["optimizer"] = local * ADAM_BYTES * trained / gpu.memory_bandwidth
    return found


@dataclass(frozen=True, kw_only=True)
class TrainerTime:
    """Seconds of a step by term; their sum is the step."""

    shape: TrainShape
    terms: dict[str, float]
    extrapolated: tuple[str, ...]  # names of inputs beyond the data

    @property
    def seconds(self) -> float:
        """The step."""
        return sum(self.terms.values())


def train_shape(spec: RunSpec, gpu: Gpu, cluster: Cluster, rates: Rates, mesh: TrainerLayout, load: Work) -> TrainShape:
    """What a rank of `mesh` does in one step of `spec`.

    Rollouts are packed into micro-batches of seq_len; the last of each rank is padded, and no rank has less than one
    rollout.
    """
    batch, length = spec.algorithm.batch_size, spec.sequence.seq_len
    groups = mesh.dp_replicate * mesh.dp_shard
    mean = max(batch / groups, 1.0) * load.length / rates.loop["packing"]
    micro = max(1, math.ceil(mean / length))
    return TrainShape(
        tokens=mean / mesh.cp,
        micro_batches=micro,
        context=load.squares,
        shards=mesh.dp_shard * mesh.cp,
        cp=mesh.cp,
        ep=mesh.ep,
        nodes=max(1, len(mesh.nodes) // mesh.dp_replicate),
        replicas=mesh.dp_replicate,
        intra=cluster.node.intra_bandwidth,
        inter=cluster.node.inter_bandwidth,
        precision=spec.trainer.precision,
        recompute=mesh.activation_checkpoint,
        offload=mesh.offload == "cpu",
    )


def trainer_time(
    spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, rates: Rates, mesh: TrainerLayout, load: Work
) -> TrainerTime:
    """The parts of one step of `spec` on `mesh`."""
    shape = train_shape(spec, gpu, cluster, rates, mesh, load)
    room = rates.runtime
    raw = features(facts, gpu, rates, shape)
    found = {name: room[name] * value for name, value in raw.items()}
    for name in ("fsdp_intra", "fsdp_inter"):
        if name in raw:  # what prefetch leaves exposed, or all that compute is too short to hide
            rest = sum(found.values()) - found[name]
            found[name] = max(found[name], raw[name] - rest)
    return TrainerTime(shape=shape, terms=found, extrapolated=_beyond_data(facts, rates, mesh))


def _beyond_data(facts: ModelFacts, rates: Rates, mesh: TrainerLayout) -> tuple[str, ...]:
    domain, found = rates.document.domain, []
    if mesh.ep > domain.normal_ep:
        found.append(f"expert all-to-all of training at ep {mesh.ep}, measured to {domain.normal_ep}")
    if len(mesh.nodes) > domain.trainer_nodes:
        found.append(f"FSDP traffic over {len(mesh.nodes)} nodes, measured to {domain.trainer_nodes}")
    if rates.document.gpu not in domain.trainer_gpus:
        found.append(f"training on {rates.document.gpu}, measured on {', '.join(domain.trainer_gpus)}")
    if facts.attention_kind not in domain.trainer_attention:
        measured = ", ".join(domain.trainer_attention)
        found.append(f"attention of kind {facts.attention_kind} in training, measured: {measured}")
    return tuple(found)
