"""Layouts by GPUs and step: the chosen one, those that lost, and the frontier over fewer and more nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.decisions import layout_text
from prlc.compiler.render import duration
from prlc.compiler.search.branch_and_bound import node_budget
from prlc.compiler.whatif import answer

if TYPE_CHECKING:
    from prlc.schema.plan import Plan

WIDTH, HEIGHT = 640, 300
MARGIN, FOOT = 62, 46
# seconds that read well
ROUND = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400)
BUDGETS = 8  # node counts that the frontier is drawn from


@dataclass(frozen=True)
class Point:
    """One layout that fits."""

    gpus: int
    step: float
    layout: str


@dataclass(frozen=True)
class Dot:
    """A layout as drawn."""

    x: float
    y: float
    kind: str  # chosen, frontier or lost
    title: str


@dataclass(frozen=True)
class Scatter:
    """Dots, the frontier as an SVG path, and ticks (place, label) of both axes."""

    dots: tuple[Dot, ...]
    path: str
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


def points(text: str, filename: str, pins: Mapping[str, str]) -> tuple[Point, ...]:
    """The fastest layouts on up to eight node counts, planned anew with the spec's own values."""
    whole = answer(text, filename, pins).resolved
    if whole is None or whole.gpu.device == "cpu":
        return ()
    most = node_budget(whole)
    counts = sorted({max(1, math.ceil(most * (n + 1) / BUDGETS)) for n in range(BUDGETS)})
    found = []
    for count in counts:
        asked = {**pins, "nodes": str(count), "objective": "{minimize: step_time}"}
        made = answer(text, filename, asked)
        if made.choice is not None:
            found.append(Point(made.choice.gpus, made.choice.step, layout_text(made.choice)))
    return tuple(found)


def scatter(plan: Plan, swept: tuple[Point, ...]) -> Scatter:
    """The plan's own alternatives and `swept`; logarithmic in the step."""
    chosen = Point(
        gpus=max(1, sum(row.gpus for row in plan.table)),
        step=plan.forecast.expected,
        layout="; ".join(f"{row.role} {row.gpus}: {row.layout}" for row in plan.table),
    )
    lost = [Point(a.gpus, a.step, a.value) for a in plan.alternatives if a.gpus and a.step]
    every = [chosen, *lost, *swept]
    left, right = 0.0, 1.05 * max(p.gpus for p in every)
    low, high = min(p.step for p in every) / 1.15, max(p.step for p in every) * 1.15

    def place(point: Point) -> tuple[float, float]:
        x = MARGIN + (point.gpus - left) / (right - left) * (WIDTH - MARGIN - 8)
        y = 8 + (math.log(high / point.step) / math.log(high / low)) * (HEIGHT - FOOT - 8)
        return round(x, 1), round(y, 1)

    ahead = sorted(
        {(p.gpus, p.step) for p in every
         if not any((q.gpus, q.step) != (p.gpus, p.step) and q.gpus <= p.gpus and q.step <= p.step for q in every)}
    )  # fmt: skip
    dots = []
    for point in [*lost, *swept, chosen]:
        kind = "chosen" if point is chosen else "frontier" if (point.gpus, point.step) in ahead else "lost"
        x, y = place(point)
        title = f"{duration(point.step)} on {point.gpus} GPUs: {point.layout}"
        dots.append(Dot(x, y, kind, title))
    corners = [place(Point(gpus, step, "")) for gpus, step in ahead]
    path = " ".join(f"{'L' if n else 'M'}{x} {y}" for n, (x, y) in enumerate(corners))
    return Scatter(
        dots=tuple(dots),
        path=path,
        across=tuple((place(Point(n, high, ""))[0], f"{n:,}") for n in _round_steps(right, 6) if n),
        up=tuple((place(Point(1, step, ""))[1], duration(step)) for step in _between(low, high)),
    )


def _round_steps(most: float, count: int) -> list[int]:
    step = 10 ** math.floor(math.log10(max(1.0, most)))
    for fraction in (0.1, 0.2, 0.5, 1):
        if most / (step * fraction) <= count:
            step = max(1, step * fraction)
            break
    return [round(step * n) for n in range(int(most / step) + 1)]


def _between(low: float, high: float) -> list[float]:
    """At most five round times inside the axis; its middle where no round one is."""
    inside = [at for at in ROUND if low <= at <= high]
    every = -(-len(inside) // 5) or 1
    return inside[::every] or [math.sqrt(low * high)]
