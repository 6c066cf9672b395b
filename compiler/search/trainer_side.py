"""The trainer's half of the search: meshes of a number of nodes that fit, fastest first, priced only when asked for."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import trainer_seconds
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.search.objective import mesh_key
from prlc.compiler.search.trainer_layouts import Mesh, Option, layout, meshes, options

if TYPE_CHECKING:
    from prlc.compiler.layout import TrainerLayout
    from prlc.compiler.resolve import Resolved

INFINITE = float("inf")


@dataclass(frozen=True)
class TimedMesh:
    """A mesh on nodes 0 .. n-1 and the seconds of its step."""

    seconds: float
    layout: TrainerLayout

    @property
    def order(self) -> tuple[float, tuple[int, ...]]:
        """Fastest first, ties by the plainest mesh."""
        return self.seconds, mesh_key(self.layout)


Queued = tuple[tuple[float, tuple[int, ...]], int, Mesh, TimedMesh]  # order, option, mesh, its time


def timed(resolved: Resolved, mesh: TrainerLayout) -> TimedMesh:
    """The mesh with its forecast."""
    spec, facts, gpu, cluster = resolved.spec, resolved.facts, resolved.gpu, resolved.cluster
    return TimedMesh(trainer_seconds(spec, facts, gpu, cluster, mesh), mesh)


def fits(resolved: Resolved, mesh: TrainerLayout) -> bool:
    """True when the most loaded rank stays within its memory."""
    spec = resolved.spec
    ledger = trainer_ledger(resolved.facts, resolved.gpu, mesh, spec.trainer.precision, spec.sequence.seq_len)
    return ledger.total <= ledger.capacity


@dataclass
class TrainerSide:
    """Meshes by (nodes, ranks a node), each looked at once.

    Offload and recompute never make a step faster, and never need more device memory. So of one mesh the option with
    neither is a bound on the time of the others, which are priced only where it does not fit; and a mesh that does
    not fit with both does not fit at all.
    """

    resolved: Resolved
    _queues: dict[tuple[int, int], list[Queued]] = field(default_factory=dict)
    _found: dict[tuple[int, int], list[TimedMesh]] = field(default_factory=dict)
    _quickest: dict[tuple[int, int], TimedMesh | None] = field(default_factory=dict)
    _nodes: dict[int, tuple[int, ...]] = field(default_factory=dict)  # shared by all meshes of a count
    _seen: set[tuple[int, int, Mesh, int]] = field(default_factory=set)

    @cached_property
    def _options(self) -> tuple[Option, ...]:
        return options(self.resolved.spec, self.resolved.gpu.device)

    def quickest(self, nodes: int, ranks: int) -> TimedMesh | None:
        """The fastest mesh of these nodes, whether it fits or not; None where there is none."""
        self._queue(nodes, ranks)
        return self._quickest[nodes, ranks]

    def floor(self, nodes: int, ranks: int) -> float:
        """No mesh of these nodes has a shorter step; infinite where there is none."""
        mesh = self.quickest(nodes, ranks)
        return mesh.seconds if mesh else INFINITE

    def fitting(self, nodes: int, ranks: int, limit: float) -> Iterator[TimedMesh]:
        """Meshes that fit and whose step is at most `limit` seconds, in their order."""
        queue, found = self._queue(nodes, ranks), self._found[nodes, ranks]
        place = 0
        while True:
            while place >= len(found) and queue and queue[0][3].seconds <= limit:
                self._advance(nodes, ranks)
            if place >= len(found) or found[place].seconds > limit:
                return
            yield found[place]
            place += 1

    def _queue(self, nodes: int, ranks: int) -> list[Queued]:
        key = (nodes, ranks)
        if key not in self._queues:
            self._queues[key], self._found[key] = [], []
            for mesh in meshes(self.resolved.spec, self.resolved.facts, nodes, ranks):
                self._push(nodes, ranks, mesh, 0)
            queue = self._queues[key]
            self._quickest[key] = queue[0][3] if queue else None
        return self._queues[key]

    def _push(self, nodes: int, ranks: int, mesh: Mesh, option: int) -> None:
        if (nodes, ranks, mesh, option) in self._seen:
            return
        self._seen.add((nodes, ranks, mesh, option))
        found = timed(self.resolved, self._layout(nodes, ranks, mesh, option))
        heapq.heappush(self._queues[nodes, ranks], (found.order, option, mesh, found))

    def _layout(self, nodes: int, ranks: int, mesh: Mesh, option: int) -> TrainerLayout:
        spec = self.resolved.spec
        if nodes not in self._nodes:
            self._nodes[nodes] = tuple(range(nodes))
        return layout(spec, self._nodes[nodes], ranks, mesh, self._options[option])

    def _advance(self, nodes: int, ranks: int) -> None:
        """Take the fastest mesh of the queue: it fits, or makes way for what needs less memory."""
        _, option, mesh, found = heapq.heappop(self._queues[nodes, ranks])
        if fits(self.resolved, found.layout):
            self._found[nodes, ranks].append(found)
            return
        every = self._options
        if option == 0 and not fits(self.resolved, self._layout(nodes, ranks, mesh, len(every) - 1)):
            return
        offload, recompute = every[option]
        for other, (its_offload, its_recompute) in enumerate(every):
            # one step towards less memory: the next recompute, or the offload with the same one
            further = other == option + 1 and its_offload == offload
            if further or (its_recompute == recompute and its_offload != offload and other > option):
                self._push(nodes, ranks, mesh, other)


def moved(mesh: TrainerLayout, first: int) -> TrainerLayout:
    """The mesh on nodes `first` and later."""
    return dataclasses.replace(mesh, nodes=tuple(range(first, first + len(mesh.nodes))))
