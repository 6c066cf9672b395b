"""Every legal layout of the engines on a given number of nodes: together, or prefill and decode apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.layout import All2All, EngineKind, EngineLayout
from prlc.compiler.ledger.engine import kv_pool

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.schema.hardware import Gpu
    from prlc.schema.run import RunSpec

# DeepEP's low-latency buffers grow with the tokens of a step; its own guide stays below 256
DECODE_BATCHED_TOKENS = 256
PREFILL_BATCHED_TOKENS = 8192
CPU_KV_BYTES = 2**30
# ranks whose all-to-all DeepEP's high-throughput kernels are built for (launch.cuh SWITCH_RDMA_RANKS)
DEEPEP_DEGREES = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)
LOW_LATENCY_TOP_K, LOW_LATENCY_HIDDEN = 11, 8192  # beyond these DeepEP's kernels abort


def tensor_degrees(spec: RunSpec, facts: ModelFacts, gpus: int) -> tuple[int, ...]:
    """Tensor-parallel degrees of a server: whole heads, inside a node whose GPUs it shares evenly."""
    asked = spec.inference.tensor_parallel
    tried = (1, 2, 4, 8) if asked == "auto" else (int(asked),)
    return tuple(t for t in tried if gpus % t == 0 and facts.heads % t == 0)


def fp8_blocks_fit(spec: RunSpec, facts: ModelFacts, tp: int) -> bool:
    """True where tp leaves whole fp8 blocks of 128 columns of an expert; a tp that is held is judged by PRL333."""
    free = spec.inference.tensor_parallel == "auto" and spec.inference.precision == "fp8" and facts.num_experts > 0
    return not free or tp == 1 or facts.moe_intermediate % (128 * tp) == 0


def shares_experts(spec: RunSpec, facts: ModelFacts, gpu: Gpu, ranks: int) -> bool:
    """True when the experts of a replica may be sharded over its ranks."""
    if spec.inference.expert_parallel is False or ranks == 1 or not facts.num_experts or facts.num_experts % ranks:
        return False
    return gpu.device == "cpu" or ranks in DEEPEP_DEGREES


def replica_ranks(
    spec: RunSpec, facts: ModelFacts, gpu: Gpu, gpus: int, most_nodes: int, tp: int
) -> Iterator[tuple[int, bool]]:
    """(GPUs of a replica, experts sharded): a server alone, or servers that share experts on part of a node, a node
    or whole nodes. A replica of several servers pays only where experts are shared.
    """
    for ranks in (*(r for r in range(1, gpus) if gpus % r == 0), *(gpus * n for n in range(1, most_nodes + 1))):
        if ranks % tp:
            continue
        shared = shares_experts(spec, facts, gpu, ranks)
        if ranks == tp and not (shared and spec.inference.expert_parallel is True):
            yield ranks, False
        if shared:
            yield ranks, True


@dataclass(frozen=True)
class Shape:
    """The smallest whole part of a role: one replica, or the servers of one node. A role is equal parts."""

    layout: EngineLayout  # on nodes 0 .. nodes-1

    @property
    def nodes(self) -> int:
        """Nodes of the part."""
        return len(self.layout.nodes)

    def times(self, count: int, first: int = 0) -> EngineLayout:
        """The role as `count` such parts on nodes `first` and later."""
        nodes = tuple(range(first, first + count * self.nodes))
        return dataclasses.replace(self.layout, nodes=nodes, replicas=count * self.layout.replicas)


def role_shapes(
    role: EngineKind, spec: RunSpec, facts: ModelFacts, gpu: Gpu, gpus: int, most_nodes: int
) -> Iterator[Shape]:
    """Shapes of one role on at most `most_nodes` nodes with `gpus` GPUs of each; the KV pool is what memory leaves.

    tp stays in a node; a replica spans nodes only where it shares experts over them, by degrees that DeepEP has.
    """
    replay = spec.algorithm.router_replay is not False and bool(facts.num_experts)
    for tp in tensor_degrees(spec, facts, gpus):
        for ranks, shared in replica_ranks(spec, facts, gpu, gpus, most_nodes, tp):
            nodes, dp = -(-ranks // gpus), ranks // tp
            if spec.inference.data_parallel not in ("auto", dp):
                continue
            if not (shared or fp8_blocks_fit(spec, facts, tp)):
                continue
            layout = EngineLayout(
                role=role,
                nodes=tuple(range(nodes)),
                replicas=max(1, gpus // ranks),
                tp=tp,
                dp=dp,
                ep=ranks if shared else 1,
                all2all=_all2all(role, shared and dp > 1, nodes, facts),
                max_model_len=spec.sequence.seq_len,
                max_num_seqs=DECODE_BATCHED_TOKENS,
                max_num_batched_tokens=DECODE_BATCHED_TOKENS if role == "decode" else PREFILL_BATCHED_TOKENS,
                gpu_memory_utilization=0.9,
                kv_bytes=0,
                kv_tokens=0,
            )
            pool, tokens_kept = kv_pool(facts, gpu, layout, spec.inference.precision, replay)
            yield Shape(dataclasses.replace(layout, kv_bytes=pool, kv_tokens=tokens_kept))


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


def _all2all(role: EngineKind, wide: bool, replica_nodes: int, facts: ModelFacts) -> All2All:
    if not wide:
        return "none"
    # beyond these DeepEP's low-latency kernels abort (internode_ll.cu:493, launch.cuh SWITCH_HIDDEN)
    low_latency = facts.top_k <= LOW_LATENCY_TOP_K and facts.expert_hidden <= LOW_LATENCY_HIDDEN
    if role == "decode" and low_latency:
        return "deepep_low_latency"
    if role != "engine" or replica_nodes > 1:
        return "deepep_high_throughput"
    return "allgather_reducescatter"
