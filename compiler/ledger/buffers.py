"""Device memory that communication holds outside torch's allocator: NCCL's buffers and DeepEP's.

Sources: DeepEP csrc/config.hpp (LowLatencyLayout), vLLM all2all.py (sizes of the high-throughput buffers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.schema.plan import LedgerEntry

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineLayout, TrainerLayout
    from prlc.schema.memory import EngineMemory, TrainerMemory

NORMAL_BUFFER = 2**30  # DeepEP high-throughput: one for NVLink, and one for RDMA where ranks lie on several nodes
ALIGNMENT = 128  # bytes


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """DeepEP low-latency buffer of a rank; `tokens`: most of one rank in a step, `experts`: of all ranks.

    Source: DeepEP config.hpp LowLatencyLayout: two sets of send, receive and count buffers.

    >>> round(low_latency_bytes(128, 7168, 256) / 2**20)
    1820
    """
    dispatch = 16 + max(2 * hidden, hidden + 4 * hidden // 128)
    combine = 4 * hidden // 128 + 2 * hidden
    counts = -(-4 * experts // ALIGNMENT) * ALIGNMENT
    return (
        2 * max(tokens * dispatch, experts * tokens * combine)
        + 2 * experts * tokens * max(dispatch, combine)
        + 2 * counts
    )


def normal_buffers(what: str, several_nodes: bool) -> LedgerEntry:
    """DeepEP's high-throughput buffers of a rank."""
    size = (2 if several_nodes else 1) * NORMAL_BUFFER
    text = "1 GiB for NVLink" + (" + 1 GiB for RDMA" if several_nodes else "") + ": VLLM_DEEPEP_BUFFER_SIZE_MB"
    return LedgerEntry(what=what, phase="always", bytes=size, formula=text)


def trainer_communicators(layout: TrainerLayout) -> int:
    """NCCL communicators of a rank: the world's, and one for each mesh axis of more than one rank.

    Axes: dp_replicate, dp_shard x cp, cp, ep, and the shards of the experts beside ep (torchtitan ParallelDims).
    """
    shards = layout.dp_shard * layout.cp
    axes = (layout.dp_replicate, shards, layout.cp, layout.ep, shards // layout.ep if layout.ep > 1 else 1)
    return (1 if layout.world > 1 else 0) + sum(size > 1 for size in axes)


def engine_communicators(layout: EngineLayout) -> int:
    """NCCL communicators of a worker: tensor-parallel, data-parallel and expert-parallel groups of several ranks."""
    return sum(size > 1 for size in (layout.tp, layout.dp if layout.expert_parallel else 1, layout.ep))


def process_entries(numbers: TrainerMemory | EngineMemory, communicators: int) -> tuple[LedgerEntry, ...]:
    """CUDA context and NCCL's buffers of one process."""
    context = LedgerEntry(
        what="CUDA context", phase="always", bytes=numbers.context, formula=f"{numbers.context // 2**20} MiB a process"
    )
    if not communicators:
        return (context,)
    each = numbers.communicator
    text = f"{communicators} communicators x {each // 2**20} MiB"
    return (
        context,
        LedgerEntry(what="NCCL buffers", phase="always", bytes=communicators * each, formula=text),
    )
