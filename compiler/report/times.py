"""The step's parts on one axis of seconds, each with its band and its own parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.render import duration

if TYPE_CHECKING:
    from prlc.schema.plan import Plan, Term

WIDTH = 640
COLORS = 10
STACKED = ("trainer step", "trainer")  # whose parts add up to them


@dataclass(frozen=True)
class Piece:
    """A part of a bar."""

    x: float
    width: float
    color: int
    title: str


@dataclass(frozen=True)
class Line:
    """One term with its band."""

    name: str
    value: str
    band: str
    width: float
    low: float
    high: float
    beyond: bool
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Row:
    """One row of the table of terms."""

    depth: int
    name: str
    value: str
    band: str
    formula: str
    source: str
    beyond: bool


@dataclass(frozen=True)
class Times:
    """The drawing: lines, ticks (x, label), and the table of all terms."""

    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[Row, ...]


def times(plan: Plan) -> Times:
    """The step and those of its parts that are seconds."""
    root = plan.forecast
    shown = [root, *(term for term in root.terms if term.unit == "s")]
    longest = max((term.high for term in shown), default=1.0) or 1.0
    scale = WIDTH / longest
    return Times(
        lines=tuple(_line(term, scale) for term in shown),
        ticks=tuple((round(at * scale, 1), duration(at) if at else "0") for at in _ticks(longest)),
        rows=tuple(_rows(root, 0)),
    )


def _line(term: Term, scale: float) -> Line:
    parts = [part for part in term.terms if part.unit == "s" and part.expected > 0] if term.name in STACKED else []
    parts.sort(key=lambda part: -part.expected)
    total = sum(part.expected for part in parts)
    # parts that overlap add up to more than the whole: they are drawn to its length, in proportion
    fit = term.expected / total if total > 0 else 0.0
    pieces, x = [], 0.0
    for place, part in enumerate(parts):
        width = part.expected * fit * scale
        title = f"{part.name}: {duration(part.expected)} ({part.expected / total:.0%})"
        pieces.append(Piece(x=round(x, 2), width=round(width, 2), color=place % COLORS, title=title))
        x += width
    return Line(
        name=term.name,
        value=duration(term.expected),
        band=f"{duration(term.low)} to {duration(term.high)}",
        width=round(term.expected * scale, 2),
        low=round(term.low * scale, 2),
        high=round(term.high * scale, 2),
        beyond=term.extrapolated,
        pieces=tuple(pieces),
    )


def _rows(term: Term, depth: int) -> list[Row]:
    own = Row(
        depth=depth,
        name=term.name,
        value=_value(term, term.expected),
        band=f"{_value(term, term.low)} to {_value(term, term.high)}" if term.low != term.high else "",
        formula=term.formula,
        source=term.source,
        beyond=term.extrapolated,
    )
    return [own, *(row for part in term.terms for row in _rows(part, depth + 1))]


def _value(term: Term, value: float) -> str:
    if term.unit == "s":
        return duration(value)
    return f"{value:.1%}" if term.unit == "1" else f"{value:,.3g} {term.unit}"


def _ticks(longest: float) -> list[float]:
    """At most eight round values from 0 on."""
    step = 10 ** math.floor(math.log10(longest))
    for fraction in (0.1, 0.2, 0.5, 1, 2):
        if longest / (step * fraction) <= 8:
            step *= fraction
            break
    # the last label needs room at the right
    return [step * n for n in range(int(longest / step) + 1) if step * n <= 0.94 * longest]
