"""The plain answer: every mesh with every engine layout on every split of the nodes, each judged whole."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from prlc.compiler.forecast.step import rollout_seconds, score, trainer_seconds
from prlc.compiler.layout import EngineLayout, TrainerLayout
from prlc.compiler.ledger.engine import engine_ledger
from prlc.compiler.ledger.host import host_ledgers
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.resolve import Resolved, resolve
from prlc.compiler.rules.example import spec_text
from prlc.compiler.rules.rule import Fragment
from prlc.compiler.search.assemble import assemble
from prlc.compiler.search.engine_layouts import role_shapes
from prlc.compiler.search.lawful import broken
from prlc.compiler.search.objective import Choice, rank
from prlc.compiler.search.trainer_layouts import layout, meshes, options

GIB = 2**30


def small(part: Fragment, nodes: int, gpus: int, memory: float) -> Resolved:
    """The rules' example spec with `part`, on nodes of H200s whose memory is `memory` bytes."""
    found, diagnostics = resolve(spec_text({"cluster": "h200-28x8", **part}), "run.yaml")
    assert found is not None, diagnostics
    node = dataclasses.replace(found.cluster.node, gpus=gpus)
    return dataclasses.replace(
        found,
        cluster=dataclasses.replace(found.cluster, nodes=nodes, node=node),
        gpu=dataclasses.replace(found.gpu, memory=memory),
    )


def splits(resolved: Resolved) -> Iterator[tuple[tuple[int, ...], int, tuple[int, ...], int]]:
    """(trainer nodes, ranks of each, engine nodes, GPUs of each)."""
    spec, gpus = resolved.spec, resolved.cluster.node.gpus
    nodes = resolved.cluster.nodes if spec.nodes == "auto" else min(spec.nodes, resolved.cluster.nodes)
    for ranks, rest in itertools.product(range(1, gpus), range(1, gpus)):
        if ranks + rest <= gpus and spec.trainer.nodes in ("auto", 1):
            yield (0,), ranks, (0,), rest
    for trainers, engines in itertools.product(range(1, nodes), range(1, nodes)):
        if trainers + engines <= nodes and spec.trainer.nodes in ("auto", trainers):
            yield tuple(range(engines, engines + trainers)), gpus, tuple(range(engines)), gpus


def trainers(resolved: Resolved, nodes: tuple[int, ...], ranks: int) -> Iterator[TrainerLayout]:
    """Every mesh that fits."""
    spec = resolved.spec
    for mesh, option in itertools.product(
        meshes(spec, resolved.facts, len(nodes), ranks), options(spec, resolved.gpu.device)
    ):
        found = layout(spec, nodes, ranks, mesh, option)
        ledger = trainer_ledger(resolved.facts, resolved.gpu, found, spec.trainer.precision, spec.sequence.seq_len)
        if ledger.total <= ledger.capacity:
            yield found


def engines(resolved: Resolved, nodes: tuple[int, ...], gpus: int) -> Iterator[tuple[EngineLayout, ...]]:
    """Every layout of the engines that holds a longest sample."""
    inference, most = resolved.spec.inference, len(nodes)
    if inference.disaggregate is not True:
        yield from ((one,) for one in role(resolved, "engine", nodes, gpus))
    if inference.disaggregate is False:
        return
    for count in range(1, most):
        if inference.prefill_nodes not in ("auto", count) or inference.decode_nodes not in ("auto", most - count):
            continue
        for prefill in role(resolved, "prefill", nodes[:count], gpus):
            for decode in role(resolved, "decode", nodes[count:], gpus):
                if prefill.tp <= decode.tp:
                    yield prefill, decode


def role(resolved: Resolved, name: str, nodes: tuple[int, ...], gpus: int) -> list[EngineLayout]:
    """Every layout of one role on exactly these nodes."""
    spec, facts, gpu = resolved.spec, resolved.facts, resolved.gpu
    replay = spec.algorithm.router_replay is not False and bool(facts.num_experts)
    found = []
    for shape in role_shapes(name, spec, facts, gpu, gpus, len(nodes)):  # type: ignore[arg-type]
        if len(nodes) % shape.nodes:
            continue
        one = shape.times(len(nodes) // shape.nodes, nodes[0])
        ledger = engine_ledger(facts, gpu, one, spec.inference.precision, replay)
        if one.kv_tokens >= spec.sequence.seq_len and ledger.total <= ledger.capacity:
            found.append(one)
    return found


def choices(resolved: Resolved) -> Iterator[Choice]:
    """Every whole layout that fits the GPUs, judged."""
    spec, facts, gpu, cluster = resolved.spec, resolved.facts, resolved.gpu, resolved.cluster
    for trainer_nodes, ranks, engine_nodes, rest in splits(resolved):
        meshes_here = [
            (mesh, trainer_seconds(spec, facts, gpu, cluster, mesh))
            for mesh in trainers(resolved, trainer_nodes, ranks)
        ]
        if not meshes_here:
            continue
        for some in engines(resolved, engine_nodes, rest):
            rollouts = rollout_seconds(spec, facts, gpu, cluster, some)
            for mesh, seconds in meshes_here:
                whole = assemble(resolved, mesh, some)
                yield Choice(whole, score(spec, facts, gpu, cluster, whole), seconds, rollouts)


def stands(resolved: Resolved, choice: Choice) -> bool:
    """True when no rule is broken, and every node's memory and scratch hold what the layout puts there."""
    if broken(resolved, choice.layout) is not None:
        return False
    ledgers = host_ledgers(resolved.spec, resolved.facts, resolved.cluster, choice.layout, resolved.gpu)
    return all(one.total <= one.capacity for one in ledgers if one.resource in ("host", "nvme"))


def best(resolved: Resolved) -> Choice | None:
    """The best layout of all, None where none fits."""
    found: Choice | None = None
    order: tuple[object, ...] = ()
    for choice in choices(resolved):
        its = rank(resolved.spec.objective, choice)
        if (found is None or its < order) and stands(resolved, choice):
            found, order = choice, its
    return found
