"""Every ledger fits, and every engine can hold at least one sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import of_cluster
from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

GIB = 2**30
HOST_CURES = (
    (("masters", "moments"), "trainer.optimizer.offload: none, or more trainer nodes"),
    (("store",), "inference.kv_offload: none, or a smaller segment on nodes with more memory"),
    (
        ("replay", "rollouts", "batch"),
        "a smaller algorithm.batch_size, fewer groups in flight, or router_replay: false",
    ),
)


def over(ledger: Ledger) -> str:
    """The label of a ledger that does not fit: its sum, its capacity, its fullest phase and its largest part."""
    largest = max(ledger.peak, key=lambda entry: entry.bytes)
    when = "" if ledger.peak_phase == "always" else f" in phase {ledger.peak_phase}"
    return (
        f"{ledger.total / GIB:.1f} GiB{when} > {ledger.capacity / GIB:.1f} GiB; "
        f"the largest part is {largest.what}, {largest.bytes / GIB:.1f} GiB"
    )


def host_cure(ledger: Ledger) -> str:
    """What would make the largest part of a host ledger smaller."""
    largest = max(ledger.peak, key=lambda entry: entry.bytes).what
    for words, cure in HOST_CURES:
        if any(word in largest for word in words):
            return cure
    return "a cluster with more memory a node"


@layout_rule(
    "PRL401",
    refused={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 10, "bytes": 11}},
    accepted={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 11, "bytes": 11}},
)
def hbm_fits(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """What a GPU must hold fits in it.

    Inequality: sum of the ledger's entries in its fullest phase <= capacity, for each role with a GPU
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
    """What a node must hold in its memory and on its scratch disk fits there; roles that share a node are added.

    Inequality: sum of the ledger's entries in its fullest phase <= capacity, where the cluster states one
    Source: the ledger; offloaded optimizer state and the KV store's segments are its largest entries.
    Cure: trainer.optimizer.offload: none, more trainer nodes, or inference.kv_offload: none.
    """
    full = [d for d in ledgers if d.resource in ("host", "nvme") and 0 < d.capacity < d.total]
    if full and resolved.gpu.device == "cpu":
        yield _machine(resolved, full)
        return
    for ledger in full:
        where = "host memory" if ledger.resource == "host" else "scratch disk"
        yield finding(
            "PRL402",
            f"{ledger.role} does not fit in the {where} of a node",
            resolved.span(("cluster",)),
            label=over(ledger),
            rule="sum of the ledger's entries <= capacity",
            help=host_cure(ledger),
            related=of_cluster(resolved, ("node", "memory"), "the node's memory"),
        )


def _machine(resolved: Resolved, full: list[Ledger]) -> Diagnostic:
    """One finding for a CPU node: its processes, with a share of its memory each, and the node that holds them."""
    fullest = max(full, key=lambda ledger: ledger.total)
    memory, need = int(resolved.cluster.node.memory), f"needs about {fullest.total / GIB:.0f} GiB"
    whole = fullest.capacity >= memory
    return finding(
        "PRL402",
        f"{resolved.model.name} {need} on a node; {resolved.cluster.name} has {memory / GIB:.0f} GiB"
        if whole
        else f"a process of {fullest.role} {need}; its share of a node's {memory / GIB:.0f} GiB is "
        f"{fullest.capacity / GIB:.0f} GiB",
        resolved.span(("cluster",)),
        label=over(fullest),
        rule="sum of the ledger's entries <= capacity",
        help="a cluster with more memory a node, or a smaller model",
        related=of_cluster(resolved, ("node", "memory"), "the node's memory"),
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


@layout_rule(
    "PRL404",
    refused={"ledger": {"role": "run", "resource": "filesystem", "capacity": 10, "bytes": 11}},
    accepted={"ledger": {"role": "run", "resource": "filesystem", "capacity": 0, "bytes": 11}},
)
def files_fit(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """What a run leaves on the shared filesystem fits, where the cluster file states its space.

    Inequality: checkpoints + published policies + batches <= filesystem of the cluster
    Source: the ledger; a checkpoint holds 12 bytes a parameter, a batch file stays until the run's folder is removed.
    Cure: a smaller trainer.keep_checkpoints, fewer steps a run, or a filesystem with more space.
    """
    for ledger in ledgers:
        if ledger.resource == "filesystem" and 0 < ledger.capacity < ledger.total:
            yield finding(
                "PRL404",
                "the run's files do not fit on the shared filesystem",
                resolved.span(("trainer", "keep_checkpoints")) or resolved.span(("cluster",)),
                label=over(ledger),
                rule="sum of the ledger's entries <= cluster.filesystem",
                help="a smaller trainer.keep_checkpoints, a lower algorithm.max_steps, or more space",
            )


@layout_rule(
    "PRL405",
    refused={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 100, "bytes": 98, "band": (0.9, 1.05)}},
    accepted={"ledger": {"role": "trainer", "resource": "hbm", "capacity": 100, "bytes": 90, "band": (0.9, 1.05)}},
)
def fits_beyond_its_band(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """A ledger that fits would still fit at the high end of its band (warning).

    Inequality: total x high end of the band <= capacity, for each role with a GPU
    Source: the band is measured over predicted of the rows that the calibration left out.
    Cure: the next larger degree that shrinks the largest part, or a shorter sequence.seq_len.
    """
    for ledger in ledgers:
        high = ledger.total * ledger.band[1]
        if ledger.resource == "hbm" and ledger.total <= ledger.capacity < high:
            yield finding(
                "PRL405",
                f"{ledger.role} fits, but not at the high end of its band",
                resolved.span(("trainer",) if ledger.role == "trainer" else ("inference",)),
                label=f"{ledger.total / GIB:.1f} GiB, up to {high / GIB:.1f} GiB, of {ledger.capacity / GIB:.1f} GiB",
                rule=f"total x {ledger.band[1]:g} <= capacity",
                help="leave more room: a higher cp or ep, more nodes, or a shorter sequence.seq_len",
                severity="warning",
            )
