"""Findings that only repeat another one, or whose advice another one contains: one fault is reported once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.schema.diagnostics import Diagnostic

# what follows from a layout that fits nowhere, and from one whose processes do not fit
OVERFULL = ("PRL401", "PRL402")
CONSEQUENCES = {
    "PRL330": (*OVERFULL, "PRL403"),
    "PRL403": OVERFULL,
    **dict.fromkeys(("PRL411", "PRL601", "PRL602", "PRL603", "PRL604"), OVERFULL),
}
# one row of catalog/compat.yaml has a rule of its own
TWICE = ("PRL801", "compat.yaml: replay-point-to-point", "PRL342")
BOUND = re.compile(r"max_off_policy_steps: (\d+)")
STALE = ("PRL351", "PRL352", "PRL354")  # all ask for a larger max_off_policy_steps


def without_echoes(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings without those that another one makes needless.

    Of several that ask for a larger max_off_policy_steps the one that asks for most stays: its value suits them all.
    """
    found = list(found)
    codes = {d.code for d in found}
    most = max((_bound(d) for d in found if d.code in STALE), default=0)
    kept, stale = [], False
    for diagnostic in found:
        if codes & set(CONSEQUENCES.get(diagnostic.code, ())):
            continue
        if (diagnostic.code, diagnostic.label) == TWICE[:2] and TWICE[2] in codes:
            continue
        if most and diagnostic.code in STALE:
            if stale or _bound(diagnostic) < most:
                continue
            stale = True
        kept.append(diagnostic)
    return kept


def _bound(diagnostic: Diagnostic) -> int:
    match = next((m for note in diagnostic.notes if note.label == "help" and (m := BOUND.search(note.text))), None)
    return int(match[1]) if match else 0
