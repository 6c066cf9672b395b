"""Seconds of one optimizer step of the trainer, from FLOPs, bytes and achieved rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast_loop import work
from prlc.compiler.ledger_trainer import IMBALANCE, kv_width

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.run import RunSpec

PACKING = 0.9  # share of a packed micro-batch that holds tokens; an assumption
# memory-bound operations and launch gaps, as a rate beside GEMM: brings 790 TFLOP/s of bf16 GEMM on an H200 to the
# 310 TFLOP/s that Qwen3-4B full RL reached outside attention (derived from prime-rl's baselines)
OVERHEAD_SHARE = 0.646
SMALL_GROUP = 256  # rows an expert from which grouped GEMM reaches its rate
HOST_BANDWIDTH = 25e9  # bytes/s of host memory or PCIe that one rank's offloaded Adam gets; an assumption
ADAM_BYTES = 28  # read and written for one parameter on the host
CPU_OVERHEAD = 0.004  # seconds a layer and micro-batch of Python and dispatch on a CPU; an assumption
# DeepEP normal kernels on H200, 4096 tokens of 7168 elements, top 8: seconds of dispatch + combine of one layer
DEEPEP = {1: 0.0, 2: 0.00146, 4: 0.00146, 8: 0.00146, 16: 0.00263, 32: 0.00549}
DEEPEP_MEASURED = 32
PASSES = {"none": (3.0, 3.5, 2), "selective": (3.5, 4.0, 2), "full": (4.0, 4.5, 3)}  # GEMM, attention, all-to-all


@dataclass(frozen=True, kw_only=True)
class TrainerTime:
    """Parts of a step in seconds; compute and all-to-all overlap with FSDP traffic and with nothing else."""

    micro_batches: int  # of one data-parallel rank
    tokens: float  # of one rank in a step
    gemm: float
    attention: float
    all_to_all: float
    fsdp: float
    optimizer: float
    extrapolated: bool  # expert-parallel degree beyond the measurements

    @property
    def seconds(self) -> float:
        """The step."""
        return max(self.gemm + self.attention + self.all_to_all, self.fsdp) + self.optimizer


def all_to_all_seconds(tokens: float, facts: ModelFacts, ep: int) -> float:
    """Dispatch and combine of one layer; beyond 32 ranks it grows with the degree as from 16 to 32."""
    if ep == 1:
        return 0.0
    known = DEEPEP.get(ep)
    if known is None:
        known = DEEPEP[32] * (ep / 32) if ep > 32 else DEEPEP[32]
    return known * tokens / 4096 * facts.expert_hidden / 7168 * facts.top_k / 8


def attention_flops(facts: ModelFacts, new: float, prefix: float) -> float:
    """Forward FLOPs of attention of `new` tokens after `prefix` cached ones, all layers, causal.

    Sparse attention is linear in index_topk, its indexer quadratic.
    """
    context = prefix + new / 2
    if facts.index_topk:
        latent = facts.kv_lora_rank or 0
        main = 2 * new * min(context, float(facts.index_topk)) * facts.heads * (2 * latent + facts.rope_dim)
        index = 2 * new * context * facts.index_heads * facts.index_head_dim
        return main * facts.attention_layers + index * facts.indexer_layers
    width = facts.heads * (facts.head_dim + facts.v_head_dim)
    total = 2 * new * context * width * facts.attention_layers
    if facts.sliding_window:
        sliding = facts.layers - facts.attention_layers - facts.linear_layers
        total += 2 * new * min(context, float(facts.sliding_window)) * width * sliding
    return total


def gemm_params(facts: ModelFacts) -> tuple[float, float]:
    """Parameters that one token multiplies: (dense ones with the head, routed ones)."""
    routed = facts.params.get("routed_experts", 0) * facts.top_k / max(1, facts.num_experts)
    head = facts.vocab * facts.hidden if facts.tied else 0
    return facts.active_params - routed - facts.params.get("embedding", 0) + head, routed


def gemm_seconds(facts: ModelFacts, gpu: Gpu, precision: str, tokens: float, rows: float) -> float:
    """Seconds of one forward through all weights; `rows`: tokens of one expert in a GEMM."""
    dense, routed = gemm_params(facts)
    fp8 = precision == "fp8"
    dense_rate = (gpu.fp8_dense if fp8 else None) or gpu.bf16_dense
    grouped = (gpu.fp8_grouped if fp8 else None) or gpu.bf16_grouped or gpu.bf16_dense
    grouped *= min(1.0, max(rows, 1.0) / SMALL_GROUP)
    other = (dense + routed) / (OVERHEAD_SHARE * gpu.bf16_dense)
    return 2 * tokens * (dense / dense_rate + routed / grouped + other)


def trainer_time(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, mesh: TrainerLayout) -> TrainerTime:
    """The parts of one step of `spec` on `mesh`."""
    load, length = work(spec), spec.sequence.seq_len
    batch = spec.algorithm.batch_size
    groups = mesh.dp_replicate * mesh.dp_shard
    per_bin = max(1.0, math.floor(length * PACKING / load.length))
    micro = max(1, math.ceil(batch / per_bin / groups))
    tokens = math.ceil(batch / groups) * load.length / mesh.cp  # of the most loaded rank
    gemm_passes, attention_passes, moves = PASSES[mesh.activation_checkpoint]
    balance = IMBALANCE if mesh.ep > 1 else 1.0
    rows = tokens / micro * mesh.ep * facts.top_k / max(1, facts.num_experts)
    precision = spec.trainer.precision
    gemm = gemm_passes * gemm_seconds(facts, gpu, precision, tokens, rows) * (balance if facts.num_experts else 1.0)
    attention = attention_passes * attention_flops(facts, load.length, 0.0) / gpu.attention * tokens / load.length
    spans = len(mesh.nodes) > 1
    bandwidth = cluster.node.inter_bandwidth if spans else cluster.node.intra_bandwidth
    shards = mesh.dp_shard * mesh.cp
    width = 4 if precision == "fp32" or gpu.device == "cpu" else 2
    routed = facts.params.get("routed_experts", 0)
    share = 1 - 1 / shards
    moved = (facts.total_params - routed) * share + routed / mesh.ep * max(0.0, 1 - mesh.ep / shards)
    fsdp = micro * moved * (2 * width + 4) / bandwidth
    if mesh.cp > 1:
        moves_kv = tokens * mesh.cp * kv_width(facts) * width * facts.attention_layers * moves
        fsdp += moves_kv * (1 - 1 / mesh.cp) / cluster.node.intra_bandwidth
    local = facts.total_params / shards
    if mesh.offload == "cpu":
        optimizer = local * ADAM_BYTES / HOST_BANDWIDTH
    else:
        optimizer = local * ADAM_BYTES / gpu.memory_bandwidth
    if gpu.device == "cpu":
        optimizer += CPU_OVERHEAD * facts.layers * micro * gemm_passes
    return TrainerTime(
        micro_batches=micro,
        tokens=tokens,
        gemm=gemm,
        attention=attention,
        all_to_all=0.0
        if gpu.device == "cpu"
        else moves * facts.moe_layers * balance * all_to_all_seconds(tokens, facts, mesh.ep),
        fsdp=fsdp,
        optimizer=optimizer,
        extrapolated=mesh.ep > DEEPEP_MEASURED,
    )
