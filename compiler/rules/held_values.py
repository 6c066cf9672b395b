"""A value that the spec holds is the value that the plan has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

Path = tuple[str, ...]
CURES = {
    "inference.expert_parallel": "a replica of at least two ranks, or expert_parallel: auto",
    "inference.data_parallel": "data_parallel: auto",
    "trainer.optimizer.offload": "offload: auto; a CPU run keeps its state in host memory as it is",
}


def chosen(resolved: Resolved, layout: Layout) -> dict[Path, object]:
    """What the layout made of each knob that may be auto."""
    mesh, engines = layout.trainer, layout.engines
    last = engines[-1]
    sides = {engine.role: len(engine.nodes) for engine in engines}
    found: dict[Path, object] = {
        ("trainer", "nodes"): len(mesh.nodes),
        ("trainer", "optimizer", "offload"): mesh.offload,
        ("trainer", "activation_checkpoint"): mesh.activation_checkpoint,
        ("algorithm", "router_replay"): layout.router_replay,
        ("algorithm", "max_inflight_groups"): layout.max_inflight_groups,
        ("inference", "tensor_parallel"): last.tp,
        ("inference", "data_parallel"): last.dp,
        ("inference", "expert_parallel"): last.expert_parallel,
        ("inference", "disaggregate"): len(engines) > 1,
        ("inference", "prefill_nodes"): sides.get("prefill", "auto"),
        ("inference", "decode_nodes"): sides.get("decode", "auto"),
        ("inference", "kv_offload"): "mooncake" if layout.store else "none",
        ("inference", "router"): layout.router,
        ("target",): layout.target,
    }
    for degree in ("dp_replicate", "dp_shard", "cp", "ep"):
        found[("trainer", "parallel", degree)] = getattr(mesh, degree)
    return found


def asked(resolved: Resolved, path: Path) -> object:
    """What the spec says there: auto where it or what holds it is auto."""
    value: object = resolved.spec
    for key in path:
        if value == "auto":
            return "auto"
        value = getattr(value, key)
    return value


@layout_rule(
    "PRL330",
    refused={"spec": {"inference": {"expert_parallel": True}}, "engine": {"tp": 1, "dp": 1, "ep": 1}},
    accepted={"spec": {"inference": {"expert_parallel": True}}, "engine": {"tp": 1, "dp": 4, "ep": 4}},
)
def held_values_are_kept(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """A value that the spec holds is the value that the plan has.

    Inequality: value in the spec == value in the layout, for every knob that is not auto
    Source: a flag that did nothing costs more than a run that did not start; what cannot be kept is refused.
    Cure: auto for that knob, or what the diagnostic names.
    """
    for path, value in chosen(resolved, layout).items():
        said = asked(resolved, path)
        if said != "auto" and said != value:
            dotted = ".".join(path)
            text = str(said).lower() if isinstance(said, bool) else said
            yield finding(
                "PRL330",
                f"{dotted}: {text} cannot be kept: the best layout that fits has {str(value).lower()}",
                resolved.span(path),
                label="would be changed without a word",
                rule="what the spec holds is what the plan has",
                help=CURES.get(dotted, f"{path[-1]}: auto"),
            )
