"""Two wishes that exclude each other: the one that the spec prefers wins, and the other's price is stated.

Only what the spec leaves to auto gives way. Two values that it holds and that exclude each other are refused by the
rules (PRL342, PRL801). The facts are rows of catalog/compat.yaml.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prlc.catalog.compat import compat
from prlc.compiler.rules.parallel_layout import node_budget
from prlc.compiler.search.solve import NoLayout, solve
from prlc.schema.plan import Alternative, Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prlc.compiler.resolve import Resolved

SMALLEST_APART = 3  # nodes: trainer, prefill, decode


@dataclass(frozen=True)
class Concession:
    """A wish that gave way: the key, its value now, the row of the table that made it and the words for the plan."""

    path: str
    value: str
    row: str
    won: str
    price: str


def settle(resolved: Resolved) -> tuple[Resolved, tuple[Concession, ...]]:
    """The spec with every wish that had to give way set to what is left of it, and those wishes."""
    spec, replay, apart = resolved.spec, _replay(resolved), _apart(resolved)
    found: list[Concession] = []
    store, held_apart = spec.inference.kv_offload, spec.inference.disaggregate is True
    if spec.inference.router == "direct" and apart and not held_apart:
        apart = False
        found.append(_apart_off("direct-apart", "inference.router: direct"))
    if store == "none" and replay and apart:
        row = "replay-point-to-point"
        held_replay = spec.algorithm.router_replay is True
        replay_first = spec.prefer.index("router_replay") < spec.prefer.index("disaggregate")
        if not held_apart and (held_replay or replay_first):
            apart = False
            found.append(_apart_off(row, "algorithm.router_replay"))
        elif not held_replay:
            replay = False
            found.append(_replay_off(row, "inference.disaggregate"))
    elif store == "mooncake" and replay and not held_apart:
        row = "replay-store-together"
        if apart:
            found.append(
                Concession("inference.disaggregate", "true", row, "algorithm.router_replay", "one kind of engine")
            )
            inference = dataclasses.replace(spec.inference, disaggregate=True)
            return _with(resolved, dataclasses.replace(spec, inference=inference)), tuple(found)
        if spec.algorithm.router_replay == "auto":
            replay = False
            found.append(_replay_off(row, "inference.kv_offload: mooncake"))
    if not found:
        return resolved, ()
    changed = dataclasses.replace(
        spec,
        algorithm=dataclasses.replace(spec.algorithm, router_replay=spec.algorithm.router_replay if replay else False),
        inference=dataclasses.replace(spec.inference, disaggregate=spec.inference.disaggregate if apart else False),
    )
    return _with(resolved, changed), tuple(found)


def _with(resolved: Resolved, spec: Any) -> Resolved:
    return dataclasses.replace(resolved, spec=spec)


def _replay(resolved: Resolved) -> bool:
    return resolved.spec.algorithm.router_replay is not False and resolved.facts.num_experts > 0


def _apart(resolved: Resolved) -> bool:
    """True where prefill and decode may or must be apart."""
    possible = resolved.gpu.device == "cuda" and node_budget(resolved) >= SMALLEST_APART
    asked = resolved.spec.inference.disaggregate
    return asked is True or (asked == "auto" and possible)


def _price(row: str) -> str:
    return next(pair.price for pair in compat().rows if pair.id == row)


def _apart_off(row: str, won: str) -> Concession:
    return Concession("inference.disaggregate", "false", row, won, "prefill and decode share engines")


def _replay_off(row: str, won: str) -> Concession:
    return Concession("algorithm.router_replay", "false", row, won, _price("replay-point-to-point"))


def gain(resolved: Resolved, concessions: tuple[Concession, ...], step: float) -> str:
    """What the step would have been with the wish that lost instead of the one that won; '' where it is no time."""
    if not any(c.path == "inference.disaggregate" and c.row == "replay-point-to-point" for c in concessions):
        return ""
    algorithm = dataclasses.replace(resolved.spec.algorithm, router_replay=False)
    try:
        other = solve(_with(resolved, dataclasses.replace(resolved.spec, algorithm=algorithm))).best
    except NoLayout:
        return "no layout has them apart either"
    if len(other.layout.engines) == 1:
        return "the best layout has them together anyway"
    return f"without replay and with them apart a step takes {other.step:.1f} s instead of {step:.1f} s"


def told(
    made: Iterable[Decision], concessions: tuple[Concession, ...], prefer: tuple[str, ...], gain: str = ""
) -> tuple[Decision, ...]:
    """The plan's decisions with what gave way in its own place; `gain` says what the loser would have brought."""
    by_path = {concession.path: concession for concession in concessions}
    reasons = {row.id: row.reason for row in compat().rows}
    found = []
    for decision in made:
        lost = by_path.get(decision.path)
        if lost is not None:
            decision = dataclasses.replace(
                decision,
                value=lost.value,
                rule=f"prefer; compat.yaml: {lost.row}",
                reason=f"{lost.won} wins. {reasons[lost.row]}",
                alternatives=(
                    Alternative(
                        value="true" if lost.value == "false" else "false",
                        outcome=f"price of doing without: {lost.price}" + (f"; {gain}" if gain else ""),
                    ),
                ),
            )
        found.append(decision)
    said = (
        "no two wishes exclude each other"
        if not concessions
        else "; ".join(f"{c.path} became {c.value} for {c.won}" for c in concessions)
    )
    order = ", ".join(prefer)
    return (*found, Decision(path="prefer", value=order, asked=order, rule="settle", reason=said))
