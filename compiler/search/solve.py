"""Choose the layout: every legal split of the nodes, mesh and engine layout that fits, by the spec's objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import needed_groups, rollout_seconds, score, trainer_seconds
from prlc.compiler.search.assemble import assemble, with_inflight, with_ports
from prlc.compiler.search.branch_and_bound import Search, Split, node_budget, trainer_counts
from prlc.compiler.search.engine_layouts import cpu_engine
from prlc.compiler.search.nearest import NoLayout, nearest_miss
from prlc.compiler.search.objective import Choice, rank
from prlc.compiler.search.trainer_layouts import layout, meshes, options

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved

__all__ = ["Choice", "NoLayout", "Solution", "solve"]

NEIGHBOURS = 5  # node splits on each side of the best that stay in the plan as alternatives
WORTH_SHOWING = 1.5  # times the best step: slower alternatives say nothing


@dataclass(frozen=True)
class Solution:
    """The choice and what it beat, best first."""

    best: Choice
    others: tuple[Choice, ...]


def solve(resolved: Resolved) -> Solution:
    """The best layout of a spec, and the best of each neighbouring split of its nodes. Raises NoLayout."""
    asked, resolved = resolved, with_inflight(resolved)
    if resolved.gpu.device == "cpu":
        return _solve_cpu(resolved)
    search = Search(resolved)
    best = search.best()
    if best is None and search.error is not None:
        # the rules alone stand in the way: the plan reports them for the layout that would be best without them
        search = Search(resolved, lawful=False)
        best = search.best()
    if best is None:
        raise nearest_miss(resolved, search)
    others = _others(resolved, search, best)
    return Solution(best=_settled(asked, best), others=others)


def _settled(resolved: Resolved, best: Choice) -> Choice:
    """The choice with its ports and with no more groups in flight than its step needs."""
    spec, facts, gpu, cluster = resolved.spec, resolved.facts, resolved.gpu, resolved.cluster
    groups = needed_groups(spec, facts, gpu, cluster, best.layout)
    return replace(best, layout=with_ports(resolved, replace(best.layout, max_inflight_groups=groups)))


def _others(resolved: Resolved, search: Search, best: Choice) -> tuple[Choice, ...]:
    """The best layout of each split near the best one's, in the order of the objective."""
    nodes, ranks, engine_nodes = best.split
    gpus = resolved.cluster.node.gpus
    shared = best.layout.nodes == 1
    found = []
    for away in range(-NEIGHBOURS, NEIGHBOURS + 1):
        if away == 0:
            continue
        if shared:
            split = Split(1, ranks + away, 1, gpus - ranks - away, shared=True)
            legal = 0 < ranks + away < gpus and resolved.spec.trainer.nodes in ("auto", 1)
        else:
            split = Split(nodes + away, gpus, engine_nodes - away, gpus)
            legal = engine_nodes > away and nodes + away in trainer_counts(resolved)
        if legal and (choice := search.improve(split, None, WORTH_SHOWING * best.step)) is not None:
            found.append(choice)
    return tuple(sorted(found, key=lambda c: rank(resolved.spec.objective, c)))


def _solve_cpu(resolved: Resolved) -> Solution:
    """One machine: all on node 0. Three nodes or more: engine 0, orchestrator 1, trainer on the rest."""
    spec, budget = resolved.spec, node_budget(resolved)
    facts, gpu, cluster = resolved.facts, resolved.gpu, resolved.cluster
    spread = budget >= 3
    asked = spec.trainer.nodes
    count = 1 if asked == "auto" else int(asked)
    nodes = tuple(range(2, 2 + count)) if spread else (budget - 1,)
    parallel = spec.trainer.parallel
    ranks = 1 if parallel == "auto" or parallel.dp_shard == "auto" else max(1, int(parallel.dp_shard) // len(nodes))
    engine = cpu_engine(spec, facts, gpu, 0)
    rollouts = rollout_seconds(spec, facts, gpu, cluster, (engine,))
    found = []
    for mesh in meshes(spec, facts, len(nodes), ranks):
        for option in options(spec, "cpu"):
            tried = layout(spec, nodes, ranks, mesh, option)
            made = assemble(resolved, tried, (engine,), 1 if spread else 0)
            step = score(spec, facts, gpu, cluster, made)
            trainer = trainer_seconds(spec, facts, gpu, cluster, tried)
            found.append(Choice(layout=made, step=step, trainer=trainer, rollouts=rollouts))
    if not found:
        raise NoLayout("no mesh satisfies the pinned degrees", "let trainer.parallel be auto")
    found.sort(key=lambda c: rank(spec.objective, c))
    best = replace(found[0], layout=with_ports(resolved, found[0].layout))
    return Solution(best=best, others=tuple(found[1:]))
