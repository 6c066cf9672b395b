"""Memory of each role and node against its capacity, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.render import size

if TYPE_CHECKING:
    from prlc.schema.plan import Ledger, Plan

WIDTH = 640  # pixels of the largest capacity
COLORS = 10  # classes seg0 .. seg9 of the page
NOUNS = {"hbm": "a GPU", "host": "host RAM of a node", "nvme": "scratch of a node", "filesystem": "shared files"}


@dataclass(frozen=True)
class Segment:
    """One entry of a ledger."""

    x: float
    width: float
    color: int
    what: str
    phase: str
    size: str
    share: str
    formula: str


@dataclass(frozen=True)
class Bar:
    """One ledger; `limit` is where its capacity ends, 0 where none is known."""

    role: str
    resource: str
    total: str
    capacity: str
    limit: float
    over: bool
    segments: tuple[Segment, ...]


def memory_bars(plan: Plan) -> tuple[Bar, ...]:
    """Ledgers that hold something, GPUs first, each drawn against its own capacity."""
    order = {"hbm": 0, "host": 1, "nvme": 2, "filesystem": 3}
    held = [ledger for ledger in plan.ledgers if ledger.total]
    return tuple(_bar(ledger) for ledger in sorted(held, key=lambda ledger: order[ledger.resource]))


def _bar(ledger: Ledger) -> Bar:
    known = ledger.capacity if ledger.resource != "filesystem" else 0
    scale = WIDTH / max(known, ledger.total)
    entries = sorted((e for e in ledger.entries if e.bytes), key=lambda e: -e.bytes)
    segments, x = [], 0.0
    for place, entry in enumerate(entries):
        width = entry.bytes * scale
        segments.append(
            Segment(
                x=round(x, 2),
                width=round(width, 2),
                color=place % COLORS,
                what=entry.what,
                phase=entry.phase,
                size=size(entry.bytes),
                share=f"{entry.bytes / ledger.total:.1%}",
                formula=entry.formula,
            )
        )
        x += width
    return Bar(
        role=ledger.role,
        resource=NOUNS[ledger.resource],
        total=size(ledger.total),
        capacity=size(known) if known else "",
        limit=round(known * scale, 2),
        over=bool(known) and ledger.total > known,
        segments=tuple(segments),
    )
