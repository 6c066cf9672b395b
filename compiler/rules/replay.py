"""Router replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, layout_rule, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

REPLAY = ("algorithm", "router_replay")


@spec_rule(
    "PRL341",
    refused={"model": "qwen3-8b", "algorithm": {"router_replay": True}},
    accepted={"algorithm": {"router_replay": True}},
)
def replay_needs_a_router(resolved: Resolved) -> Iterator[Diagnostic]:
    """Only a model with experts has a router to replay.

    Inequality: router_replay == true => num_experts > 0
    Source: the engine records the experts of each token; a dense model chooses none.
    Cure: router_replay: auto (off for a dense model) or false.
    """
    if resolved.spec.algorithm.router_replay is True and not resolved.facts.num_experts:
        yield finding(
            "PRL341",
            f"{resolved.model.name} is dense: it has no router to replay",
            resolved.span(REPLAY),
            label="no experts",
            help="router_replay: auto, or leave it out",
        )


@layout_rule(
    "PRL342",
    refused={"layout": {"store": None, "router_replay": True}, "roles": ("prefill", "decode")},
    accepted={"layout": {"store": None, "router_replay": False}, "roles": ("prefill", "decode")},
)
def replay_apart_needs_the_store(
    resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]
) -> Iterator[Diagnostic]:
    """With prefill and decode apart, replay needs the store as the path of the KV cache.

    Inequality: router_replay and prefill apart from decode => kv_offload == mooncake
    Source: vLLM refuses to return routed experts together with a point-to-point KV transfer.
    Cure: inference.kv_offload: auto, inference.disaggregate: false, or algorithm.router_replay: false.
    """
    if layout.router_replay and len(layout.engines) > 1 and layout.store is None:
        yield finding(
            "PRL342",
            "router replay with prefill and decode apart needs the KV store, and kv_offload is none",
            resolved.span(("inference", "kv_offload")) or resolved.span(("cluster",)),
            rule="router_replay and disaggregate => kv_offload == mooncake",
            help="kv_offload: auto, disaggregate: false, or router_replay: false",
        )
