"""What the spec asks for, against the forecast of the best layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import forecast
from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger


@layout_rule(
    "PRL411",
    refused={"spec": {"objective": {"step_time": "1ms"}}},
    accepted={"spec": {"objective": {"step_time": "24h"}}},
)
def step_time_reached(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The best layout reaches the step time that was asked for (warning).

    Inequality: forecast of a step <= objective.step_time
    Source: the forecast, whose terms, formulas and band `prlc plan --json` prints.
    Cure: more nodes, a smaller batch, or a longer step time; the plan shown is the fastest that fits.
    """
    asked = resolved.spec.objective.step_time
    if asked is None:
        return
    step = forecast(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout)
    if step.expected > asked:
        longest = max(step.terms, key=lambda t: t.expected if t.unit == "s" else 0.0, default=step)
        yield finding(
            "PRL411",
            f"no layout reaches the step time: {step.expected:.3g} s are expected, {asked:.3g} s were asked for",
            resolved.span(("objective", "step_time")),
            label=f"the longest part is {longest.name}, {longest.expected:.3g} s",
            rule="forecast of a step <= objective.step_time",
            help="more nodes, a smaller algorithm.batch_size, or a longer step_time",
            severity="warning",
        )
