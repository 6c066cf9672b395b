"""The joint search over node splits, meshes and engines: branch and bound, the same answer as trying them all.

What makes the pruning sound, each held by tests/compiler/test_solve_bounds.py and all by test_solve_exhaustive.py:
1. a step is no shorter than its trainer and its rollouts: score >= max(trainer_seconds, rollout_seconds);
2. the weight sync knows mesh and engines by their nodes and seconds, and a step does not grow when one of these
   seconds falls, or when the trainer has more nodes. So of the meshes and of the engines on the same nodes the
   fastest ones make the best pair, and the sync is priced for these alone;
   Nor does the fastest trainer of more nodes ever take more than twice as long as that of fewer;
3. offload and recompute never save time (trainer_side); one more replica of a role never costs rollouts
   (engine_side), nor does it make a step longer.
A split whose bound equals the best is still looked at: ties are broken by rank alone. The forecast bisects, so that
these hold to one part in a million: a layout that is better by less may be missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import score
from prlc.compiler.ledger.host import host_ledgers
from prlc.compiler.search.assemble import assemble
from prlc.compiler.search.engine_side import INFINITE, EngineSide, TimedEngines
from prlc.compiler.search.lawful import broken
from prlc.compiler.search.objective import ROUNDING, Choice, rank, step_limit
from prlc.compiler.search.trainer_layouts import layout
from prlc.compiler.search.trainer_side import TimedMesh, TrainerSide, moved

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineLayout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

WIDER = 1 + 1e-4  # a little more than the limit is priced, so that a bound has room for the forecast's noise
MORE_NODES = 2.0  # a trainer on more nodes is at most so much slower than the fastest on fewer: experts may no longer
# cover the shards, and gathers cross the network


@dataclass(frozen=True)
class Split:
    """Nodes of the trainer and of the engines; of one shared node, GPUs of each."""

    trainer_nodes: int
    ranks: int  # trainer GPUs of a node
    engine_nodes: int
    gpus: int  # engine GPUs of a node
    shared: bool = False  # both on node 0

    @property
    def total(self) -> int:
        """GPUs of both."""
        return self.trainer_nodes * self.ranks + self.engine_nodes * self.gpus


def node_budget(resolved: Resolved) -> int:
    """Nodes that the plan may use."""
    asked = resolved.spec.nodes
    return resolved.cluster.nodes if asked == "auto" else min(int(asked), resolved.cluster.nodes)


def trainer_counts(resolved: Resolved) -> tuple[int, ...]:
    """Nodes that the trainer may have beside engine nodes."""
    asked, budget = resolved.spec.trainer.nodes, node_budget(resolved)
    return tuple(n for n in (range(1, budget) if asked == "auto" else (int(asked),)) if n < budget)


def shared_splits(resolved: Resolved) -> tuple[Split, ...]:
    """Trainer and engines on one node, on GPUs of their own."""
    gpus = resolved.cluster.node.gpus
    if resolved.spec.trainer.nodes not in ("auto", 1):
        return ()
    return tuple(Split(1, r, 1, e, shared=True) for r in range(1, gpus) for e in range(1, gpus - r + 1))


def host_overflow(resolved: Resolved, choice: Choice) -> Ledger | None:
    """The ledger of host memory or scratch that does not fit, if one does not."""
    for ledger in host_ledgers(resolved.spec, resolved.facts, resolved.cluster, choice.layout, resolved.gpu):
        if ledger.resource in ("host", "nvme") and ledger.total > ledger.capacity:
            return ledger
    return None


def _excess(ledger: Ledger) -> int:
    return ledger.total - ledger.capacity


@dataclass
class Search:
    """One search of a spec; what it learns about meshes and engines serves every split."""

    resolved: Resolved
    trainer: TrainerSide = field(init=False)
    lawful: bool = True  # leave out what breaks a rule
    rejected: Ledger | None = None  # of host memory, the nearest miss of layouts that failed on nothing else
    error: Diagnostic | None = None  # of the last layout that broke a rule
    _scored: dict[tuple[object, ...], Choice] = field(default_factory=dict)
    _engines: dict[int, EngineSide] = field(default_factory=dict)
    _quick: list[TimedMesh] = field(default_factory=list)  # the fastest of some node counts, whether they fit or not
    _steps: dict[tuple[int, int], float] = field(default_factory=dict)  # (trainer, engine nodes): no step is shorter

    def __post_init__(self) -> None:
        """The trainer's half has no state of its own at start."""
        self.trainer = TrainerSide(self.resolved)

    def engines(self, gpus: int) -> EngineSide:
        """Engines on nodes with `gpus` GPUs each."""
        whole = gpus == self.resolved.cluster.node.gpus
        if gpus not in self._engines:
            most = node_budget(self.resolved) - 1 if whole else 1
            self._engines[gpus] = EngineSide(self.resolved, gpus, most, self._engines_are_lawful)
        return self._engines[gpus]

    def _engines_are_lawful(self, engines: tuple[EngineLayout, ...]) -> bool:
        """True when no rule is broken beside a trainer of the plainest mesh."""
        if not self.lawful:
            return True
        mesh = layout(self.resolved.spec, (0,), 1, (1, 1, 1, 1), ("none", "none"))
        error = broken(self.resolved, assemble(self.resolved, mesh, engines))
        self.error = error or self.error
        return error is None

    def best(self) -> Choice | None:
        """The best layout of the spec, None when nothing fits."""
        budget, counts = node_budget(self.resolved), trainer_counts(self.resolved)
        best: Choice | None = None
        for split in shared_splits(self.resolved):
            best = self.improve(split, best)
        best = self._climb(counts, best)
        # what saves GPUs is found from few nodes upwards, what saves time from many downwards
        objective = self.resolved.spec.objective
        slow = objective.step_time is not None and (best is None or best.counted > objective.step_time)
        fastest = slow or (objective.step_time is None and objective.minimize in (None, "step_time"))
        if fastest:
            return self._sweep(counts, budget, best)
        for total in range(2, budget + 1):
            for count in reversed(counts):
                if count < total:
                    best = self.improve(self._split(count, total), best)
        return best

    def _sweep(self, counts: tuple[int, ...], budget: int, best: Choice | None) -> Choice | None:
        """The best layout for a short step: few trainer nodes first, until too few are left for the engines."""
        gpus = self.resolved.cluster.node.gpus
        side = self.engines(gpus)
        widest = max(side.parts, default=1)
        starved = 0  # in a row: as many as the widest part settle all that is below
        for count in counts:
            if best is not None:
                limit = best.step * ROUNDING
                starved = starved + 1 if side.best(budget - count, limit * WIDER) is None else 0
                if starved >= widest:
                    break
                known = [m.seconds for m in self._quick if len(m.layout.nodes) > count]
                if max(known, default=0.0) > limit * MORE_NODES:
                    continue
            best = self._along(count, budget, best)
        return best

    def _along(self, count: int, budget: int, best: Choice | None) -> Choice | None:
        """The better of `best` and the best layout with `count` trainer nodes, for a short step: most engines first."""
        widest = max(self.engines(self.resolved.cluster.node.gpus).parts, default=1)
        useless = 0  # in a row: as many as the widest part settle all that is below
        for engine_nodes in range(budget - count, 0, -1):
            if best is not None and self._useless(count, engine_nodes, best):
                useless += 1
                if useless >= widest:
                    return best
            else:
                useless = 0
                best = self.improve(self._split(count, count + engine_nodes), best)
        return best

    def _useless(self, trainer_nodes: int, engine_nodes: int, best: Choice) -> bool:
        """True when the split is known to be slower than `best`, by what more nodes make of it.

        One more part of engines never makes a step longer, so with a given trainer no engines here are faster than the
        fastest that some part more makes. And no trainer that is slower and on fewer nodes than a quick one is
        better beside these engines.
        """
        limit = best.step * ROUNDING
        if self._row(trainer_nodes, engine_nodes, limit) > limit:
            return True
        ranks = self.resolved.cluster.node.gpus
        floor = self.trainer.floor(trainer_nodes, ranks)
        if floor > limit:
            return True
        quick = next((m for m in self._quick if len(m.layout.nodes) > trainer_nodes and m.seconds <= floor), None)
        if quick is None:
            return False
        nodes = len(quick.layout.nodes)
        if self._row(nodes, engine_nodes, limit) > limit:
            return True
        if (nodes, engine_nodes) not in self._steps:
            bound = limit * WIDER
            engines = self.engines(ranks).best(engine_nodes, bound)
            if engines is not None:
                bound = min(bound, self._score(self._split(nodes, nodes + engine_nodes), quick, engines).step)
            self._steps[nodes, engine_nodes] = bound
        return self._steps[nodes, engine_nodes] > limit

    def _row(self, trainer_nodes: int, engine_nodes: int, step: float) -> float:
        """No engines on these nodes make a shorter step beside this trainer."""
        parts = self.engines(self.resolved.cluster.node.gpus).parts
        known = self._steps.get((trainer_nodes, engine_nodes), 0.0)
        bound = min((self._steps.get((trainer_nodes, engine_nodes + part), 0.0) for part in parts), default=INFINITE)
        lowest = max(known, bound)
        if lowest > step:
            self._steps[trainer_nodes, engine_nodes] = lowest
        return lowest

    def _split(self, count: int, total: int) -> Split:
        gpus = self.resolved.cluster.node.gpus
        return Split(count, gpus, total - count, gpus)

    def improve(self, split: Split, best: Choice | None, most: float = INFINITE) -> Choice | None:
        """The better one of `best` and the best of the split; layouts slower than `most` seconds are left out."""
        for choice in self.candidates(split, best, most):
            if best is None or self._rank(choice) < self._rank(best):
                best = choice
        return best

    def candidates(self, split: Split, best: Choice | None, most: float = INFINITE) -> Iterator[Choice]:
        """The fastest mesh with the fastest engines of the split, if it may beat `best`; others if the host is full."""
        limit = min(most, step_limit(self.resolved.spec.objective, best, split.total))
        if limit < 0 or self.trainer.floor(split.trainer_nodes, split.ranks) > limit:
            return
        shortest = limit = limit * WIDER
        engines = self.engines(split.gpus).best(split.engine_nodes, limit)
        if engines is not None:
            for mesh in self.trainer.fitting(split.trainer_nodes, split.ranks, limit):
                choice = self._score(split, mesh, engines)
                shortest = min(shortest, choice.step)
                if self._stands(choice):
                    yield choice
                    break  # else a slower mesh may need less host memory, or break no rule
        if not split.shared:
            self._steps[split.trainer_nodes, split.engine_nodes] = shortest

    def _rank(self, choice: Choice) -> tuple[object, ...]:
        return rank(self.resolved.spec.objective, choice)

    def _stands(self, choice: Choice) -> bool:
        """True when every host holds its part and no rule is broken."""
        overflow = host_overflow(self.resolved, choice)
        if overflow is not None and (self.rejected is None or _excess(overflow) < _excess(self.rejected)):
            self.rejected = overflow
        error = broken(self.resolved, choice.layout) if self.lawful and overflow is None else None
        self.error = error or self.error
        return overflow is None and error is None

    def _score(self, split: Split, mesh: TimedMesh, engines: TimedEngines) -> Choice:
        key = (split, mesh.order)
        if key not in self._scored:
            r = self.resolved
            placed = mesh.layout if split.shared else moved(mesh.layout, split.engine_nodes)
            whole = assemble(r, placed, engines.engines)
            step = score(r.spec, r.facts, r.gpu, r.cluster, whole)
            self._scored[key] = Choice(layout=whole, step=step, trainer=mesh.seconds, rollouts=engines.seconds)
        return self._scored[key]

    def _climb(self, counts: tuple[int, ...], best: Choice | None) -> Choice | None:
        """A good layout soon, so that little of the rest is priced: halvings of all nodes, then ever smaller steps."""
        if not counts:
            return best
        budget, gpus = counts[-1] + 1, self.resolved.cluster.node.gpus
        ladder = sorted({max(counts[0], budget >> power) for power in range(1, budget.bit_length())} & set(counts))
        for count in ladder:
            best = self.improve(self._split(count, budget), best)
        self._quick = [mesh for n in ladder if (mesh := self.trainer.quickest(n, gpus)) is not None]
        away = budget // 4
        while away and best is not None:
            here, at = best, best.split[0]
            for count in (at - away, at + away):
                if count in counts:
                    best = self.improve(self._split(count, budget), best)
            if best is here:
                away //= 2
        return best
