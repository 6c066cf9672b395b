"""Every legal layout of the engines on a given number of nodes: together, or prefill and decode apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.layout import All2All, EngineKind, EngineLayout
from prlc.compiler.ledger_engine import kv_pool

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.run import RunSpec

# DeepEP's low-latency buffers grow with the tokens of a step; its own guide stays below 256
DECODE_BATCHED_TOKENS = 256
PREFILL_BATCHED_TOKENS = 8192
CPU_KV_BYTES = 2**30
# ranks whose all-to-all DeepEP's high-throughput kernels are built for (launch.cuh SWITCH_RDMA_RANKS)
DEEPEP_DEGREES = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)


def tensor_degrees(spec: RunSpec, facts: ModelFacts, gpus_per_node: int) -> tuple[int, ...]:
    """Tensor-parallel degrees worth trying: 1 where one latent head would be replicated (MLA, DSA), else to 8."""
    asked = spec.inference.tensor_parallel
    if asked != "auto":
        return (asked,)
    if facts.attention_kind in ("mla", "dsa"):
        return (1,)
    return tuple(t for t in (1, 2, 4, 8) if gpus_per_node % t == 0 and t <= gpus_per_node and facts.heads % t == 0)


def shards_experts(spec: RunSpec, facts: ModelFacts, ranks: int) -> bool:
    """True when the experts of a replica are sharded over its ranks."""
    if not facts.num_experts or facts.num_experts % ranks or ranks == 1:
        return False
    return spec.inference.expert_parallel in ("auto", True)


def role_layouts(
    role: EngineKind,
    spec: RunSpec,
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    nodes: tuple[int, ...],
    gpus: int,
) -> Iterator[EngineLayout]:
    """Layouts of one role on `nodes` with `gpus` GPUs of each; the KV pool is what the memory leaves."""
    replay = spec.algorithm.router_replay is not False and bool(facts.num_experts)
    for tp in tensor_degrees(spec, facts, gpus):
        if gpus % tp:
            continue
        for replica_nodes in (n for n in range(1, len(nodes) + 1) if len(nodes) % n == 0):
            dp = replica_nodes * gpus // tp
            if spec.inference.data_parallel not in ("auto", dp):
                continue
            wide = shards_experts(spec, facts, tp * dp)
            if replica_nodes > 1 and not wide:
                continue  # a replica over nodes pays only where experts are shared
            if wide and gpu.device == "cuda" and tp * dp not in DEEPEP_DEGREES:
                continue
            tokens = DECODE_BATCHED_TOKENS if role == "decode" else PREFILL_BATCHED_TOKENS
            layout = EngineLayout(
                role=role,
                nodes=nodes,
                replicas=len(nodes) // replica_nodes,
                tp=tp,
                # without shared experts every server is a replica of its own
                dp=dp if wide else 1,
                ep=tp * dp if wide else 1,
                all2all=_all2all(role, wide, replica_nodes),
                max_model_len=spec.sequence.seq_len,
                max_num_seqs=DECODE_BATCHED_TOKENS,
                max_num_batched_tokens=tokens,
                gpu_memory_utilization=0.9,
                kv_bytes=0,
                kv_tokens=0,
            )
            if not wide:
                layout = dataclasses.replace(layout, replicas=len(nodes) * gpus // tp)
            pool, tokens_kept = kv_pool(facts, gpu, layout, spec.inference.precision, replay)
            yield dataclasses.replace(layout, kv_bytes=pool, kv_tokens=tokens_kept)


def cpu_engine(spec: RunSpec, facts: ModelFacts, gpu: Gpu, node: int) -> EngineLayout:
    """The one engine of a CPU run."""
    layout = EngineLayout(
        role="engine",
        nodes=(node,),
        replicas=1,
        tp=1,
        dp=1,
        ep=1,
        all2all="none",
        max_model_len=spec.sequence.seq_len,
        max_num_seqs=128,
        max_num_batched_tokens=max(2048, spec.sequence.seq_len),
        gpu_memory_utilization=0.0,
        kv_bytes=CPU_KV_BYTES,
        kv_tokens=0,
    )
    _, tokens = kv_pool(facts, gpu, layout, spec.inference.precision, bool(facts.num_experts))
    return dataclasses.replace(layout, kv_tokens=tokens)


def _all2all(role: EngineKind, wide: bool, replica_nodes: int) -> All2All:
    if not wide:
        return "none"
    if role == "decode":
        return "deepep_low_latency"
    if role == "prefill" or replica_nodes > 1:
        return "deepep_high_throughput"
    return "allgather_reducescatter"
