"""Memory of an engine's GPU that does not hold KV, part by part (bytes), and what is left for the KV pool."""

from __future__ import annotations

from prlc.compiler.layout import All2All
from prlc.schema.plan import LedgerEntry

GIB = 2**30


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """DeepEP low-latency buffer of a rank. Source: DeepEP config.hpp LowLatencyLayout.

    >>> round(low_latency_bytes(128, 7168, 256) / 2**20)
    1820
    """
    dispatch = 16 + max(2 * hidden, hidden + 4 * hidden // 128)
    combine = 4 * hidden // 128 + 2 * hidden
    counts = -(-4 * experts // 128) * 128
    return (
        2 * max(tokens * dispatch, experts * tokens * combine)
        + 2 * experts * tokens * max(dispatch, combine)
        + 2 * counts
    )


def all2all_entry(kind: All2All, *, tokens: int, hidden: int, experts: int, multi_node: bool) -> LedgerEntry:
    """Buffers of the expert all-to-all; tokens is max_num_batched_tokens of a rank."""
    if kind == "deepep_low_latency":
        size = low_latency_bytes(tokens, hidden, experts) + experts * tokens * hidden
        text = f"LowLatencyLayout({tokens} tokens, hidden {hidden}, {experts} experts) + received E x T x H"
    elif kind == "deepep_high_throughput":
        size = (2 if multi_node else 1) * GIB
        text = "1 GiB NVLink" + (" + 1 GiB RDMA" if multi_node else "")
    else:
        size, text = 0, f"{kind}: no buffer of its own"
    return LedgerEntry(what="expert all-to-all buffers", phase="always", bytes=size, formula=text)


def weights_entry(
    *, dense_params: int, replicated_params: int, routed_params: int, tp: int, ep: int, bytes_per_param: float
) -> LedgerEntry:
    """Weights of a GPU: dense over tp, replicated ones (MLA latent, indexer) whole, experts over ep or tp."""
    ranks = ep if ep > 1 else tp
    size = int((dense_params / tp + replicated_params + routed_params / ranks) * bytes_per_param)
    return LedgerEntry(
        what="weights",
        phase="always",
        bytes=size,
        formula=f"({dense_params} / tp {tp} + {replicated_params} replicated + {routed_params} / {ranks})"
        f" x {bytes_per_param} B",
    )


def kv_tokens(*, capacity: int, utilization: float, resident: int, bytes_per_token: int) -> int:
    """Tokens that fit beside `resident` bytes within utilization x capacity; 0 when nothing is left."""
    return max(0, int(capacity * utilization) - resident) // bytes_per_token
