"""Time of a trainer step and of a weight update, from rates of the catalog. First order: see docs/method.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.ledger_host import PUBLISHED, rollout_tokens

if TYPE_CHECKING:
    from prlc.catalog import Cluster, Gpu, ModelFacts
    from prlc.compiler.layout import Layout, TrainerLayout
    from prlc.schema.run import RunSpec

# Share of the GEMM rate that a whole layer reaches: memory-bound operations, launches, exposed FSDP.
# Qwen3-4B full RL: about 310 of 790 TFLOP/s once attention is priced apart (8 H200, January 2026).
LAYER_EFFICIENCY = 0.4
CPU_EFFICIENCY = 0.1  # small matrices on one core
FILESYSTEM_RATE = 1.6e9  # bytes/s of a checkpoint written and read each step (prime-rl baselines, derived)
CPU_STEP = 0.3  # s, step overhead on a CPU: measured 0.31 s for 64 short rollouts of the tiny model


def attention_flops(facts: ModelFacts, tokens: float, context: float) -> float:
    """Forward FLOPs of attention for `tokens` queries that see `context` keys on average, all layers.

    DSA: the indexer sees all keys, the main attention at most index_topk.
    """
    seen = min(context, facts.index_topk) if facts.index_topk else context
    if facts.sliding_window:
        seen = (seen + min(context, facts.sliding_window)) / 2
    width = facts.heads * (facts.head_dim + facts.v_head_dim)
    main = 2 * tokens * seen * width * facts.attention_layers
    index = 2 * tokens * context * facts.index_heads * facts.index_head_dim * facts.indexer_layers
    return main + index


def compute_seconds(spec: RunSpec, facts: ModelFacts, gpu: Gpu, mesh: TrainerLayout) -> float:
    """Forward, recompute and backward of a batch on the mean rank.

    2 FLOPs a weight and token forward, 4 backward, 2 more under full recompute; attention 4.5 / 3.5 x forward.
    """
    length = rollout_tokens(spec)
    tokens = spec.algorithm.batch_size * length
    passes = 8 if mesh.activation_checkpoint == "full" else 6
    weights = facts.active_params - facts.params.get("embedding", 0)
    # fp8 is priced as bf16: its GEMMs are faster, quantizing costs, and public RL runs at this scale saw no gain
    rate = gpu.bf16_grouped or gpu.bf16_dense
    efficiency = CPU_EFFICIENCY if gpu.device == "cpu" else LAYER_EFFICIENCY
    dense = passes * weights * tokens / (rate * efficiency)
    attention = (4.5 if passes == 8 else 3.5) * attention_flops(facts, tokens, length / 2) / gpu.attention
    return (dense + attention) / mesh.world


def micro_batches(spec: RunSpec, mesh: TrainerLayout) -> int:
    """Micro-batches of a rank in a step: samples packed to the micro-batch's tokens."""
    tokens = spec.algorithm.batch_size * rollout_tokens(spec)
    return max(1, -(-tokens // (mesh.dp_replicate * mesh.dp_shard * spec.sequence.seq_len)))


def fsdp_seconds(spec: RunSpec, facts: ModelFacts, cluster: Cluster, mesh: TrainerLayout) -> float:
    """Gathers (bf16, forward and backward) and reduce-scatters (fp32) of every micro-batch, at the slowest link."""
    if mesh.world == 1:
        return 0.0
    routed = facts.params.get("routed_experts", 0)
    moved = (facts.total_params - routed) + routed / mesh.ep
    link = cluster.node.inter_bandwidth if len(mesh.nodes) > 1 else cluster.node.intra_bandwidth
    return micro_batches(spec, mesh) * moved * (2 * 2 + 4) / link


def expert_seconds(spec: RunSpec, facts: ModelFacts, cluster: Cluster, mesh: TrainerLayout) -> float:
    """All-to-all of routed tokens: dispatch and combine, forward, recompute and backward, bf16."""
    if mesh.ep == 1:
        return 0.0
    tokens = spec.algorithm.batch_size * rollout_tokens(spec) / mesh.world
    rounds = 3 if mesh.activation_checkpoint == "full" else 2
    moved = 2 * rounds * tokens * facts.top_k * facts.hidden * 2 * facts.moe_layers
    inside = mesh.ep <= mesh.ranks_per_node
    return moved / (cluster.node.intra_bandwidth if inside else cluster.node.inter_bandwidth)


def context_seconds(spec: RunSpec, facts: ModelFacts, cluster: Cluster, mesh: TrainerLayout) -> float:
    """Gather of keys and values (the latent where there is one) in every layer, forward, recompute, backward."""
    if mesh.cp == 1:
        return 0.0
    width = facts.kv_lora_rank + facts.rope_dim if facts.kv_lora_rank else 2 * facts.kv_heads * facts.head_dim
    tokens = spec.algorithm.batch_size * rollout_tokens(spec) / (mesh.dp_replicate * mesh.dp_shard)
    return 3 * tokens * width * 2 * facts.attention_layers / cluster.node.intra_bandwidth


def optimizer_seconds(facts: ModelFacts, cluster: Cluster, gpu: Gpu, mesh: TrainerLayout) -> float:
    """One pass over state: at HBM bandwidth, or over the host link and memory when offloaded (20 GB/s a GPU)."""
    mine = facts.total_params / (mesh.dp_shard * mesh.cp)
    return mine * 28 / (20e9 if mesh.offload == "cpu" else gpu.memory_bandwidth)


def trainer_seconds(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, mesh: TrainerLayout) -> float:
    """One optimizer step: computing and FSDP overlap, the all-to-alls do not."""
    overlapped = max(compute_seconds(spec, facts, gpu, mesh), fsdp_seconds(spec, facts, cluster, mesh))
    alone = expert_seconds(spec, facts, cluster, mesh) + context_seconds(spec, facts, cluster, mesh)
    overhead = CPU_STEP if gpu.device == "cpu" else 0.0
    return overlapped + alone + optimizer_seconds(facts, cluster, gpu, mesh) + overhead


def sync_seconds(spec: RunSpec, facts: ModelFacts, layout: Layout) -> float:
    """A policy written to the shared filesystem by all trainer nodes, then read whole by every replica.

    1.6 GB/s a node, as one node did it in public runs; that it grows with the nodes is an extrapolation.
    """
    size = facts.total_params * PUBLISHED[spec.inference.precision]
    engine_nodes = len({node for engine in layout.engines for node in engine.nodes})
    replicas = sum(engine.replicas for engine in layout.engines)
    written = size / (FILESYSTEM_RATE * len(layout.trainer.nodes))
    return written + size * replicas / (FILESYSTEM_RATE * engine_nodes)
