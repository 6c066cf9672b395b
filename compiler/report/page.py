"""The page: every drawing, the decisions and the warnings, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prlc.compiler.forecast.loop import work
from prlc.compiler.render import ATTENTION, duration, params, plural, size
from prlc.compiler.report.cluster_map import cluster_map
from prlc.compiler.report.lag import lag_chart
from prlc.compiler.report.memory import memory_bars
from prlc.compiler.report.scatter import Point, scatter
from prlc.compiler.report.times import times
from prlc.schema.codec import decode
from prlc.schema.positions import load
from prlc.schema.run import RunSpec
from prlc.templates import page

if TYPE_CHECKING:
    from prlc.schema.plan import Plan


def html(plan: Plan, text: str, swept: tuple[Point, ...] = (), changes: Sequence[str] = ()) -> str:
    """The page of a plan and the text of its spec, pins and all.

    `swept`: more layouts for the scatter; `changes`: what was pinned, for the header.
    """
    spec = decode(RunSpec, load(text, "spec").data)
    load_of = work(spec)
    gpus = sum(row.gpus for row in plan.table)
    model = plan.model
    facts = [params(model.total_params), ATTENTION.get(model.attention, model.attention)]
    if model.num_experts:
        facts.append(f"{model.num_experts} experts, top {model.top_k}")
    step = plan.forecast
    hourly = spec.algorithm.batch_size * load_of.length / step.expected * 3600 / max(1, gpus)
    cpu = plan.cluster.gpu == "cpu"
    figures = [
        ("step", duration(step.expected), f"{duration(step.low)} to {duration(step.high)}"),
        *(
            (term.name, duration(term.expected), f"{duration(term.low)} to {duration(term.high)}")
            for term in step.terms
            if term.unit == "s"
        ),
        ("processes" if cpu else "GPUs", f"{gpus:,}", plural(plan.topology.nodes, "node")),
        (f"tokens a {'process' if cpu else 'GPU'}-hour", f"{hourly:,.0f}", f"{load_of.length:,.0f} tokens a rollout"),
    ]
    return page(
        "page.html.j2",
        plan=plan,
        facts=", ".join(facts),
        hardware=f"{plan.topology.nodes} x {plan.cluster.gpus_per_node} {plan.cluster.gpu.upper()}",
        figures=figures,
        changes=tuple(changes),
        map=cluster_map(plan),
        bars=memory_bars(plan),
        times=times(plan),
        scatter=None if cpu else scatter(plan, swept),
        lag=lag_chart(plan, load_of.sigma),
        replay=size(model.replay_bytes_per_token),
    )
