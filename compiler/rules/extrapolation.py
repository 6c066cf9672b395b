"""Where the forecast leaves the data that it rests on, each term by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import step_time
from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

HELP = "prlc calibrate on the metrics of a first run, then kernels: FILE; until then trust the band, not the middle"
KEPT = 0.9  # share of prefixes that must outlive a pause in the KV pools


@layout_rule(
    "PRL601",
    refused={"trainer": {"ep": 128}},
    accepted={"trainer": {"ep": 4}},
)
def trainer_within_data(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The training step lies within the rows that its coefficients rest on (warning).

    Inequality: ep, nodes and attention kind within `domain` of the kernels file
    Source: catalog/kernels, whose domain says how far its measurements reach.
    Cure: calibrate on a run of your own, or stay within the domain.
    """
    found = step_time(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout)
    for name in found.trainer.extrapolated:
        yield finding(
            "PRL601",
            f"training is forecast beyond its data: {name}",
            resolved.span(("model",)),
            label=f"trainer step {found.trainer.seconds:.3g} s",
            rule="domain of the kernels file",
            help=HELP,
            severity="warning",
        )


@layout_rule(
    "PRL602",
    refused={"engine": {"dp": 512, "ep": 512, "replicas": 1, "all2all": "deepep_low_latency"}},
    accepted={"engine": {"dp": 1, "ep": 1}},
)
def engines_within_data(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Prefill and decode lie within the rows that their coefficients rest on (warning).

    Inequality: ep, tp, prefix, GPU and attention kind within `domain` of the kernels file
    Source: catalog/kernels, whose domain says how far its measurements reach.
    Cure: calibrate on a run of your own, or stay within the domain.
    """
    found = step_time(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout)
    for name in found.engine.extrapolated:
        yield finding(
            "PRL602",
            f"rollouts are forecast beyond their data: {name}",
            resolved.span(("model",)),
            label=f"decode step {found.engine.decode_step * 1e3:.3g} ms",
            rule="domain of the kernels file",
            help=HELP,
            severity="warning",
        )


@layout_rule(
    "PRL603",
    refused={
        "spec": {"workload": {"tool_time": {"mean": "60s", "p95": "10min"}, "turns": {"mean": 40}}},
        "engine": {"kv_tokens": 16384, "replicas": 1},
    },
    accepted={"engine": {"kv_tokens": 10_000_000}},
)
def prefixes_outlive_pauses(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The KV pools, or a store behind them, keep a conversation's prefix until its tools answer (warning).

    Inequality: share of prefixes kept >= 0.9 of those that a cache of any size would find
    Source: LRU stack distances; below the working set the hit rate falls off a cliff (83 to 36 % in one round of
    Mooncake's own test), and every miss is prefilled again.
    Cure: inference.kv_offload: mooncake, more inference nodes, or fewer groups in flight.
    """
    found = step_time(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout)
    engine, base = found.engine, found.rates.loop["prefix_hit"]
    if engine.prefix_hit >= KEPT * base:
        return
    yield finding(
        "PRL603",
        f"{engine.prefix_hit:.0%} of a turn's prefix is found in a cache, {base:.0%} were possible: "
        f"{engine.working_set:.3g} tokens are alive, the KV pools hold {engine.pool:.3g}",
        resolved.span(("inference",)) or resolved.span(("workload",)),
        label=f"each turn prefills {found.load.prefill + (1 - engine.prefix_hit) * found.load.prefix:.0f} tokens, "
        f"{found.load.prefill:.0f} are new",
        rule="prefix hits >= 0.9 x possible hits",
        help="inference.kv_offload: mooncake, more inference nodes, or a smaller algorithm.max_inflight_groups",
        severity="warning",
    )


@layout_rule(
    "PRL604",
    refused={"trainer": {"nodes": (0, 1)}},
    accepted={"trainer": {"nodes": (0,)}},
)
def sync_within_data(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The weight sync lies within the rows that its rate rests on (warning).

    Inequality: one trainer node, one engine node
    Source: prime-rl's filesystem broadcast was measured on one node; several are taken to write and read side by side.
    Cure: calibrate on the metrics of a first run: they hold the time of each publication.
    """
    writers = len(layout.trainer.nodes)
    readers = len({n for engine in layout.engines for n in engine.nodes})
    if writers == 1 and readers == 1:
        return
    sync = step_time(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout).sync
    yield finding(
        "PRL604",
        f"the weight sync is forecast beyond its data: {writers} nodes write and {readers} read, measured on 1",
        resolved.span(("cluster",)),
        label=f"weight sync {sync:.3g} s",
        rule="one node writes, one reads",
        help=HELP,
        severity="warning",
    )
