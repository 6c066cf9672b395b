"""The engines' half of the search: the engines of a number of nodes that supply a batch soonest.

A class is what each role's replica is: one shape alone, or a prefill and a decode shape. Inside a class only the
number of replicas of the two roles is open. One more replica of a role never slows the supply of rollouts (a test
holds the forecast to it); so a stretch of splits is bounded by the most replicas that either role has in it, and a
class on some nodes by the same class on more of them. All classes compete in one queue, the lowest bound first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import rollout_seconds
from prlc.compiler.ledger.engine import engine_ledger
from prlc.compiler.search.engine_layouts import Shape, role_shapes
from prlc.compiler.search.objective import engines_key

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineKind, EngineLayout
    from prlc.compiler.resolve import Resolved

INFINITE = float("inf")
NEVER = 10**9  # nodes of a part that cannot be added
KEPT_BOUNDS = 24  # of a class, the latest


@dataclass(frozen=True)
class TimedEngines:
    """Engines on nodes 0 .. n-1 and the seconds in which they supply one batch."""

    seconds: float
    engines: tuple[EngineLayout, ...]


@dataclass(frozen=True)
class EngineClass:
    """The shapes of the roles: (engine,) or (prefill, decode)."""

    number: int
    shapes: tuple[Shape, ...]


@dataclass
class EngineSide:
    """Engines of nodes with `gpus` GPUs each; every forecast is asked once."""

    resolved: Resolved
    gpus: int
    most_nodes: int
    lawful: Callable[[tuple[EngineLayout, ...]], bool] = lambda engines: True  # asked of a class that would be best
    _known_lawful: set[int] = field(default_factory=set)
    _lawless: set[int] = field(default_factory=set)  # classes that are not
    _seconds: dict[tuple[int, ...], float] = field(default_factory=dict)
    _best: dict[int, TimedEngines] = field(default_factory=dict)
    _above: dict[int, float] = field(default_factory=dict)  # nodes: seconds that nothing on them is within
    _bounds: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # class: (nodes, nothing is faster)

    @cached_property
    def classes(self) -> tuple[EngineClass, ...]:
        """Every class whose servers hold the KV cache of the longest sample."""
        apart = self.resolved.spec.inference.disaggregate
        found: list[tuple[Shape, ...]] = []
        if apart is not True:
            found += [(shape,) for shape in self._shapes("engine", self.most_nodes)]
        if apart is not False and self.most_nodes >= 2:
            prefills = self._shapes("prefill", self.most_nodes - 1)
            decodes = self._shapes("decode", self.most_nodes - 1)
            # a prefill server hands its KV heads to at least as many decode ranks
            found += [(p, d) for p in prefills for d in decodes if p.layout.tp <= d.layout.tp]
        found.sort(key=lambda shapes: engines_key(tuple(s.layout for s in shapes)))
        return tuple(EngineClass(number, shapes) for number, shapes in enumerate(found))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """For each class the nodes of the smallest part that it can have one more of."""
        return tuple(sorted({min(self._growing(kind), default=NEVER) for kind in self.classes}))

    def _growing(self, kind: EngineClass) -> list[int]:
        """Nodes of a part of each role whose nodes the spec does not hold."""
        inference = self.resolved.spec.inference
        held = (inference.prefill_nodes, inference.decode_nodes) if len(kind.shapes) == 2 else ("auto",)
        return [shape.nodes for shape, asked in zip(kind.shapes, held, strict=True) if asked == "auto"]

    def _shapes(self, role: EngineKind, most_nodes: int) -> list[Shape]:
        spec, facts, gpu = self.resolved.spec, self.resolved.facts, self.resolved.gpu
        replay = spec.algorithm.router_replay is not False and bool(facts.num_experts)
        found = []
        for shape in role_shapes(role, spec, facts, gpu, self.gpus, most_nodes):
            ledger = engine_ledger(facts, gpu, shape.layout, spec.inference.precision, replay)
            if shape.layout.kv_tokens >= spec.sequence.seq_len and ledger.total <= ledger.capacity:
                found.append(shape)
        return found

    def best(self, nodes: int, limit: float) -> TimedEngines | None:
        """The fastest engines on exactly `nodes` nodes, None if none supplies a batch within `limit` seconds."""
        if nodes not in self._best and self._above.get(nodes, -1.0) < limit:
            found = self._search(nodes, limit)
            if found is None:
                self._above[nodes] = limit
            else:
                self._best[nodes] = found
        best = self._best.get(nodes)
        return best if best is not None and best.seconds <= limit else None

    def engines(self, kind: EngineClass, counts: tuple[int, ...]) -> tuple[EngineLayout, ...]:
        """The layouts of a class with `counts` parts of each role, prefill first."""
        found, first = [], 0
        for shape, count in zip(kind.shapes, counts, strict=True):
            found.append(shape.times(count, first))
            first += count * shape.nodes
        return tuple(found)

    def seconds(self, kind: EngineClass, counts: tuple[int, ...]) -> float:
        """Forecast of a class with these counts."""
        key = (kind.number, *counts)
        if key not in self._seconds:
            r = self.resolved
            self._seconds[key] = rollout_seconds(r.spec, r.facts, r.gpu, r.cluster, self.engines(kind, counts))
        return self._seconds[key]

    def _counts(self, kind: EngineClass, nodes: int, last: int) -> tuple[int, ...]:
        """Parts of each role when the last one has `last`."""
        if len(kind.shapes) == 1:
            return (last,)
        return (nodes - last * kind.shapes[1].nodes) // kind.shapes[0].nodes, last

    def _last_counts(self, kind: EngineClass, nodes: int) -> range:
        """Parts of the last role that leave whole parts for the other, ascending."""
        last = kind.shapes[-1].nodes
        if len(kind.shapes) == 1:
            return range(nodes // last, nodes // last + (nodes >= last and nodes % last == 0))
        first, inference = kind.shapes[0].nodes, self.resolved.spec.inference
        if inference.prefill_nodes != "auto":
            rest = nodes - int(inference.prefill_nodes)
            whole = rest > 0 and rest % last == 0 and (nodes - rest) % first == 0
            return range(rest // last, rest // last + whole)
        if inference.decode_nodes != "auto":
            held = int(inference.decode_nodes)
            whole = held % last == 0 and nodes > held and (nodes - held) % first == 0
            return range(held // last, held // last + whole)
        most = (nodes - first) // last
        step = first // math.gcd(first, last)
        start = next((n for n in range(1, min(most, step) + 1) if (nodes - n * last) % first == 0), most + 1)
        return range(start, most + 1, step)

    def _known(self, kind: EngineClass, nodes: int) -> float:
        """What is known without a forecast: the class is no faster here than with more parts of one role."""
        parts, best = self._growing(kind), 0.0
        for on, seconds in self._bounds.get(kind.number, ()):
            if on >= nodes and seconds > best and (on == nodes or any((on - nodes) % part == 0 for part in parts)):
                best = seconds
        return best

    def _search(self, nodes: int, limit: float) -> TimedEngines | None:
        """Best first over stretches (class, first and last place in its counts); of equals the first class wins."""
        heap: list[tuple[float, int, int, int, bool]] = []
        counts_of: dict[int, range] = {}
        for kind in self.classes:
            counts = self._last_counts(kind, nodes)
            known = self._known(kind, nodes)
            if counts and known <= limit and kind.number not in self._lawless:
                counts_of[kind.number] = counts
                heap.append((known, kind.number, 0, len(counts) - 1, False))
        heapq.heapify(heap)
        while heap:
            seconds, number, first, last, priced = heapq.heappop(heap)
            if seconds > limit:
                self._learn(nodes, limit, [(seconds, number), *((entry[0], entry[1]) for entry in heap)])
                return None
            kind, counts = self.classes[number], counts_of[number]
            if number in self._lawless:
                continue
            if not priced:
                most = (*self._counts(kind, nodes, counts[first])[:-1], counts[last])
                found = self.seconds(kind, most)
                bound = found if first == last else max(seconds, found)
                heapq.heappush(heap, (bound, number, first, last, True))
            elif first == last:
                engines = self.engines(kind, self._counts(kind, nodes, counts[first]))
                if not self._is_lawful(kind, engines):
                    continue
                self._learn(nodes, seconds, [(seconds, number), *((entry[0], entry[1]) for entry in heap)])
                return TimedEngines(seconds, engines)
            else:
                middle = (first + last) // 2
                heapq.heappush(heap, (seconds, number, first, middle, False))
                heapq.heappush(heap, (seconds, number, middle + 1, last, False))
        return None

    def _is_lawful(self, kind: EngineClass, engines: tuple[EngineLayout, ...]) -> bool:
        if kind.number not in self._known_lawful:
            if not self.lawful(engines):
                self._lawless.add(kind.number)
                return False
            self._known_lawful.add(kind.number)
        return True

    def _learn(self, nodes: int, limit: float, open_bounds: list[tuple[float, int]]) -> None:
        """Keep for each class the lowest bound that was still open: nothing of the class is faster on these nodes."""
        lowest: dict[int, float] = {}
        for seconds, number in open_bounds:
            lowest[number] = min(seconds, lowest.get(number, INFINITE))
        for number, seconds in lowest.items():
            kept = self._bounds.setdefault(number, [])
            kept.append((nodes, seconds))
            del kept[:-KEPT_BOUNDS]
