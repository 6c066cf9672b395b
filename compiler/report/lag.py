"""How old rollouts are when they are trained: the share of each age in policy versions, and what is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast.loop import drop_rate

if TYPE_CHECKING:
    from prlc.schema.plan import Plan

WIDTH, HEIGHT, FOOT = 640, 160, 34
SHOWN = 1.5  # times the bound, then all that is older in one bar


@dataclass(frozen=True)
class Column:
    """Rollouts of one age."""

    x: float
    y: float
    width: float
    height: float
    label: str
    dropped: bool
    title: str


@dataclass(frozen=True)
class LagChart:
    """Columns, where the bound stands, and the figures in words."""

    columns: tuple[Column, ...]
    bound: float
    words: str


def lag_chart(plan: Plan, sigma: float) -> LagChart | None:
    """Ages by the forecast's own drop rate with every bound; `sigma` is that of rollouts' durations."""
    loop = plan.orchestrator
    in_flight, batch, bound = loop.max_inflight_groups * loop.group_size, loop.batch_size, loop.max_off_policy_steps
    if bound < 1:
        return None
    last = max(bound + 1, min(40, round(SHOWN * bound)))
    above = [1.0, *(drop_rate(in_flight, batch, age, sigma) for age in range(1, last + 1))]
    shares = [(f"{age}", above[age - 1] - above[age], age > bound) for age in range(1, last + 1)]
    shares.append((f">{last}", above[last], True))
    tallest = max(share for _, share, _ in shares) or 1.0
    width = WIDTH / len(shares)
    columns = []
    for place, (label, share, dropped) in enumerate(shares):
        height = share / tallest * (HEIGHT - FOOT - 14)
        columns.append(
            Column(
                x=round(place * width + 1, 1),
                y=round(HEIGHT - FOOT - height, 1),
                width=round(width - 2, 1),
                height=round(height, 1),
                label=label,
                dropped=dropped,
                title=f"{label} versions: {share:.1%}{', dropped' if dropped else ''}",
            )
        )
    words = ", ".join(
        f"{term.name} {term.expected:.1%}" if term.unit == "1" else f"{term.name} {term.expected:.3g}"
        for term in plan.forecast.terms
        if term.name.startswith(("lag", "dropped", "wasted"))
    )
    return LagChart(columns=tuple(columns), bound=round(bound * width, 1), words=words)
