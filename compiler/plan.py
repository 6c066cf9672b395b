"""spec -> plan: resolve, rules, solve, ledgers, forecast, reasons. Touches nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING

from prlc.compiler.bundle.configs import checkpoint_path, orchestrator_config, trainer_config
from prlc.compiler.bundle.launch import launches
from prlc.compiler.bundle.preflight import preflight_config, preflight_launches
from prlc.compiler.bundle.slurm import SAVE_MARGIN, signal_seconds, slurm_options
from prlc.compiler.bundle.topology import topology
from prlc.compiler.decisions import decisions, layout_text, table
from prlc.compiler.derived import derived
from prlc.compiler.echoes import without_echoes
from prlc.compiler.forecast.step import forecast
from prlc.compiler.layout import LaunchInputs
from prlc.compiler.ledger.engine import engine_ledger
from prlc.compiler.ledger.host import host_ledgers
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.pins import with_pins
from prlc.compiler.resolve import resolve
from prlc.compiler.rules import LAYOUT_RULES, SPEC_RULES
from prlc.compiler.search.misses import ways_out
from prlc.compiler.search.solve import NoLayout, Solution, solve
from prlc.compiler.search.wishes import gain, settle, told
from prlc.compiler.whatif import grown
from prlc.schema.diagnostics import Diagnostic, Note
from prlc.schema.plan import (
    Alternative,
    ClusterSummary,
    Ledger,
    ModelSummary,
    Plan,
    Warning,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved

WAYS = 3  # ways out of a spec that fits nowhere, at most so many are named
NO_WAY = "a smaller model, or GPUs with more memory: no number of nodes that was tried is enough, whatever is auto"


def plan(
    text: str, filename: str, pins: Mapping[str, str] | None = None, grow: bool = False
) -> tuple[Plan | None, list[Diagnostic]]:
    """The plan of a spec, or None with every reason why there is none; warnings come with the plan.

    `pins` maps spec paths to values, e.g. {"trainer.parallel.ep": "16"}; they replace what the spec says.
    `grow`: with more `nodes` pinned than the cluster has, plan as if it had them.
    """
    resolved, found = resolve(with_pins(text, pins or {}), filename)
    if resolved is None:
        return None, found
    if grow:
        resolved = grown(resolved, pins or {})
    for rule in SPEC_RULES:
        found.extend(rule(resolved))
    found = judged(found, resolved.spec.strict)
    if any(d.severity == "error" for d in found):
        return None, found
    settled, concessions = settle(resolved)
    try:
        solution = solve(settled)
    except NoLayout as error:
        found.append(_nothing_fits(resolved, error))
        return None, found
    layout = solution.best.layout
    ledgers = all_ledgers(resolved, layout)
    for layout_rule in LAYOUT_RULES:
        found.extend(layout_rule(resolved, layout, ledgers))
    found = judged(without_echoes(found), resolved.spec.strict)
    if any(d.severity == "error" for d in found):
        return None, found
    made = _assemble(resolved, solution, ledgers, text, found)
    reasons = told(made.decisions, concessions, resolved.spec.prefer, gain(resolved, concessions, solution.best.step))
    return dataclasses.replace(made, decisions=(*reasons, *derived(resolved, solution.best, made))), found


def _nothing_fits(resolved: Resolved, error: NoLayout) -> Diagnostic:
    """PRL400 at the value that would have to change, with changes that were searched and have a layout."""
    ways = ways_out(resolved) if resolved.gpu.device == "cuda" else ()
    place = ways[0].path if ways else ("cluster",)
    cure = ", or ".join(way.text for way in ways[:WAYS])
    if not cure:
        cure = NO_WAY if resolved.gpu.device == "cuda" else error.cure
    return Diagnostic(
        code="PRL400",
        severity="error",
        message=error.why,
        span=resolved.span(place) or resolved.span(("cluster",)),
        label="has to change" if ways else "",
        notes=(Note("help", cure), Note("more", "prlc explain PRL400")),
    )


def judged(found: list[Diagnostic], strict: bool) -> list[Diagnostic]:
    """The diagnostics; with `strict` every warning is an error."""
    return [dataclasses.replace(d, severity="error") for d in found] if strict else found


def all_ledgers(resolved: Resolved, layout: Layout) -> tuple[Ledger, ...]:
    """Memory of every role."""
    spec, facts, gpu = resolved.spec, resolved.facts, resolved.gpu
    return (
        trainer_ledger(facts, gpu, layout.trainer, spec.trainer.precision, spec.sequence.seq_len),
        *(engine_ledger(facts, gpu, e, spec.inference.precision, layout.router_replay) for e in layout.engines),
        *host_ledgers(spec, facts, resolved.cluster, layout, gpu),
    )


def _assemble(
    resolved: Resolved, solution: Solution, ledgers: tuple[Ledger, ...], text: str, found: list[Diagnostic]
) -> Plan:
    spec, facts, layout = resolved.spec, resolved.facts, solution.best.layout
    grace = signal_seconds(spec.slurm, solution.best.step) - SAVE_MARGIN
    roles = topology(spec.name, layout, resolved.gpu.device, grace)
    trainer, orchestrator = trainer_config(resolved, layout), orchestrator_config(resolved, layout)
    inputs = LaunchInputs(
        spec=spec,
        model=resolved.model,
        facts=facts,
        gpu=resolved.gpu,
        cluster=resolved.cluster,
        layout=layout,
        topology=roles,
        trainer=trainer,
        orchestrator=orchestrator,
    )
    preflight = preflight_config(inputs, ledgers)
    row_bytes = 1 if facts.num_experts <= 256 else 2
    return Plan(
        compiler=version("prlc"),
        name=spec.name,
        spec_sha256=hashlib.sha256(text.encode()).hexdigest(),
        spec_text=text,
        model=ModelSummary(
            name=resolved.model.name,
            checkpoint=checkpoint_path(resolved),
            model_type=resolved.model.model_type,
            attention=facts.attention_kind,
            total_params=facts.total_params,
            active_params=facts.active_params,
            layers=facts.layers,
            moe_layers=facts.moe_layers,
            num_experts=facts.num_experts,
            top_k=facts.top_k,
            replay_bytes_per_token=facts.layers * facts.top_k * row_bytes if facts.num_experts else 0,
        ),
        cluster=ClusterSummary(
            name=resolved.cluster.name,
            target=layout.target,
            nodes=layout.nodes,
            gpus_per_node=resolved.cluster.node.gpus,
            gpu=resolved.gpu.name,
        ),
        run_dir=f"runs/{spec.name}" if spec.runtime.run_dir == "auto" else spec.runtime.run_dir,
        environment_setup=spec.runtime.venv,
        table=table(resolved, solution),
        ledgers=ledgers,
        forecast=forecast(spec, facts, resolved.gpu, resolved.cluster, layout),
        decisions=decisions(resolved, solution),
        warnings=tuple(
            Warning(code=d.code, message=d.message, help=next((n.text for n in d.notes if n.label == "help"), ""))
            for d in found
        ),
        alternatives=tuple(
            Alternative(
                value=layout_text(c),
                outcome=f"step {c.step:.1f} s on {c.gpus} GPUs; "
                f"chosen: {solution.best.step:.1f} s on {solution.best.gpus}",
                step=c.step,
                gpus=c.gpus,
            )
            for c in solution.others[:10]
        ),
        topology=roles,
        trainer=trainer,
        orchestrator=orchestrator,
        launches=launches(inputs),
        preflight=preflight,
        checks=preflight_launches(inputs, preflight),
        slurm=slurm_options(resolved, solution.best.step),
    )
