"""Every ledger fits, and every engine can hold at least one sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

GIB = 2**30


def over(ledger: Ledger) -> str:
    """The label of a ledger that does not fit: its sum, its capacity and its largest part."""
    largest = max(ledger.entries, key=lambda entry: entry.bytes)
    return (
        f"{ledger.total / GIB:.1f} GiB > {ledger.capacity / GIB:.1f} GiB; "
        f"the largest part is {largest.what}, {largest.bytes / GIB:.1f} GiB"
    )


@layout_rule(
    "PRL401",
    refused={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 10, "bytes": 11}},
    accepted={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 11, "bytes": 11}},
)
def hbm_fits(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """What a GPU must hold fits in it.

    Inequality: sum of the ledger's entries <= capacity, for each role with a GPU
    Source: the ledger; every entry carries its formula (`prlc plan --json`, ledgers).
    Cure: more nodes for the role, a shorter seq_len, optimizer offload, or a lower precision.
    """
    for ledger in ledgers:
        if ledger.resource == "hbm" and ledger.total > ledger.capacity:
            yield finding(
                "PRL401",
                f"{ledger.role} does not fit in the memory of a GPU",
                resolved.span(("trainer",) if ledger.role == "trainer" else ("inference",)),
                label=over(ledger),
                rule="sum of the ledger's entries <= capacity",
                help="trainer.optimizer.offload: auto, more trainer nodes, or a shorter sequence.seq_len"
                if ledger.role == "trainer"
                else "inference.precision: fp8, or more inference nodes",
            )


@layout_rule(
    "PRL402",
    refused={"ledger": {"role": "trainer", "resource": "host", "capacity": 10, "bytes": 11}},
    accepted={"ledger": {"role": "trainer", "resource": "host", "capacity": 11, "bytes": 11}},
)
def host_fits(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """What a node must hold in its memory and on its scratch disk fits there.

    Inequality: sum of the ledger's entries <= capacity, for host memory and NVMe of each node
    Source: the ledger; offloaded optimizer state and the KV store's segments are its largest entries.
    Cure: trainer.optimizer.offload: none, more trainer nodes, or inference.kv_offload: none.
    """
    for ledger in ledgers:
        if ledger.resource in ("host", "nvme") and ledger.total > ledger.capacity:
            where = "host memory" if ledger.resource == "host" else "scratch disk"
            yield finding(
                "PRL402",
                f"{ledger.role} does not fit in the {where} of a node",
                resolved.span(("cluster",)),
                label=over(ledger),
                rule="sum of the ledger's entries <= capacity",
                help="trainer.optimizer.offload: none, more trainer nodes, or inference.kv_offload: none",
            )


@layout_rule(
    "PRL403",
    refused={"engine": {"kv_tokens": 100}},
    accepted={"engine": {"kv_tokens": 200_000}},
)
def pool_holds_a_sample(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Each engine server can hold the KV cache of the longest sample.

    Inequality: kv_tokens of a server >= seq_len
    Source: vLLM refuses to start when max_model_len exceeds its KV pool.
    Cure: a higher tensor_parallel, wider expert parallelism, inference.precision: fp8, or a shorter seq_len.
    """
    length = resolved.spec.sequence.seq_len
    for engine in layout.engines:
        if engine.kv_tokens < length:
            yield finding(
                "PRL403",
                f"a server of {engine.role} has no room for one sample",
                resolved.span(("sequence", "seq_len")),
                label=f"KV pool {engine.kv_tokens:,} tokens < {length:,}",
                rule="kv_tokens >= seq_len",
                help=f"seq_len: {engine.kv_tokens}" if engine.kv_tokens > 0 else "inference.precision: fp8",
            )
