"""Every value that the compiler derived, with its reason, and the plan's table of roles."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.search.solve import Choice, Solution
from prlc.schema.plan import Alternative, Decision, RoleSummary

if TYPE_CHECKING:
    from prlc.compiler.layout import EngineLayout, TrainerLayout
    from prlc.compiler.resolve import Resolved


GIB = 2**30
LIGHTER = {"full": "selective", "selective": "none"}


def node_range(nodes: tuple[int, ...]) -> str:
    """(0, 1, 2) -> '0-2'."""
    return f"{nodes[0]}-{nodes[-1]}" if len(nodes) > 1 else f"{nodes[0]}"


def mesh_text(mesh: TrainerLayout) -> str:
    """'hsdp 2, fsdp 48 = dp 12 x cp 4, ep 8, optimizer on cpu, full recompute'."""
    parts = [f"fsdp {mesh.dp_shard * mesh.cp} = dp {mesh.dp_shard} x cp {mesh.cp}", f"ep {mesh.ep}"]
    if mesh.dp_replicate > 1:
        parts.insert(0, f"hsdp {mesh.dp_replicate}")
    if mesh.offload == "cpu":
        parts.append("optimizer on cpu")
    if mesh.activation_checkpoint != "none":
        parts.append(f"{mesh.activation_checkpoint} recompute")
    return ", ".join(parts)


def engine_text(engine: EngineLayout) -> str:
    """'7 x (tp 2, dp 4, ep 8)'."""
    return f"{engine.replicas} x (tp {engine.tp}, dp {engine.dp}, ep {engine.ep})"


def layout_text(choice: Choice) -> str:
    """A whole layout in one line: GPUs of each role and its degrees."""
    mesh = choice.layout.trainer
    engines = "; ".join(f"{e.role} {e.gpus}: {engine_text(e)}" for e in choice.layout.engines)
    return f"trainer {mesh.world}: {mesh_text(mesh)}; {engines}"


def table(resolved: Resolved, solution: Solution) -> tuple[RoleSummary, ...]:
    """One row a role that computes."""
    choice, spec = solution.best, resolved.spec
    mesh = choice.layout.trainer
    rows = [
        RoleSummary(
            role="trainer",
            nodes=node_range(mesh.nodes),
            gpus=mesh.world,
            layout=f"{mesh_text(mesh)}, {spec.trainer.precision}",
            reason=_mesh_reason(resolved, choice),
        )
    ]
    for engine in choice.layout.engines:
        rows.append(
            RoleSummary(
                role=engine.role,
                nodes=node_range(engine.nodes),
                gpus=engine.gpus,
                layout=f"{engine_text(engine)}, {spec.inference.precision}",
                reason=_engine_reason(engine),
            )
        )
    return tuple(rows)


def _mesh_reason(resolved: Resolved, choice: Choice) -> str:
    mesh = choice.layout.trainer
    if mesh.world == 1:
        return "one rank: the model needs no sharding"
    tokens = degree_reason(resolved, choice, "cp")
    return f"{degree_reason(resolved, choice, 'ep')}; {tokens}" if resolved.facts.num_experts else tokens


def degree_reason(resolved: Resolved, choice: Choice, degree: str) -> str:
    """Why one degree of the mesh is what it is, with what it makes of memory or traffic."""
    mesh, facts = choice.layout.trainer, resolved.facts
    if degree == "dp_replicate":
        if mesh.dp_replicate == 1:
            return "one copy: every rank holds a share of the state, none holds it twice"
        return f"{mesh.dp_replicate} copies of the state, so that gathers stay among {mesh.dp_shard * mesh.cp} ranks"
    if degree == "dp_shard":
        shards = mesh.dp_shard * mesh.cp
        state = facts.total_params * 4 / shards / GIB
        return f"the rest of {mesh.world} ranks: fp32 masters over {shards} shards are {state:.1f} GiB each"
    if degree == "cp":
        return f"cp {mesh.cp}: {mesh.micro_batch_tokens} tokens a rank"
    layer = facts.params.get("routed_experts", 0) / max(1, facts.moe_layers) * 2 / GIB
    gather = f"ep {mesh.ep}: a layer gathers {layer / mesh.ep:.1f} GiB of experts"
    return f"{gather}, not {layer:.1f}" if mesh.ep > 1 else gather


def _memory_reason(resolved: Resolved, mesh: TrainerLayout, **other: Any) -> str:
    """What a GPU would hold with another option, the mesh as it is."""
    spec = resolved.spec
    seen = dataclasses.replace(mesh, **other)
    ledger = trainer_ledger(resolved.facts, resolved.gpu, seen, spec.trainer.precision, spec.sequence.seq_len)
    ((name, value),) = other.items()
    fits = "fits too, but the spec holds it" if ledger.total <= ledger.capacity else "does not fit"
    need = f"{ledger.total / GIB:.0f} GiB of {ledger.capacity / GIB:.0f} GiB a GPU"
    return f"with {name} {value} a rank of this mesh needs {need}: {fits}"


def _engine_reason(engine: EngineLayout) -> str:
    pool = f"KV pool {engine.kv_tokens / 1e6:.2f} M tokens a server"
    return f"experts over {engine.ep} ranks; {pool}" if engine.ep > 1 else pool


def _said(value: object) -> str:
    return "(absent)" if value is None else str(value)


def decisions(resolved: Resolved, solution: Solution) -> tuple[Decision, ...]:
    """One a derived value, in the spec's order."""
    spec, choice = resolved.spec, solution.best
    layout = choice.layout
    mesh, algorithm = layout.trainer, spec.algorithm
    splits = tuple(
        Alternative(
            value=f"{len(c.layout.trainer.nodes)} trainer nodes, "
            f"{sum(len(e.nodes) for e in c.layout.engines)} engine nodes",
            outcome=f"step {c.step:.1f} s ({c.step / choice.step - 1:+.1%})",
        )
        for c in solution.others[:5]
    )
    share = f"trainer {choice.trainer:.1f} s, rollouts {choice.rollouts:.1f} s, step {choice.step:.1f} s"
    replay = "experts that the engine chose are replayed" if layout.router_replay else "no router to replay"
    asked_parallel = spec.trainer.parallel
    found = [
        _decision("nodes", spec.nodes, layout.nodes, "objective", share),
        _decision("trainer.nodes", spec.trainer.nodes, len(mesh.nodes), "solve", share, splits),
        _decision(
            "algorithm.router_replay",
            algorithm.router_replay,
            str(layout.router_replay).lower(),
            "replay_wanted",
            replay,
        ),
        _decision(
            "algorithm.max_inflight_groups",
            algorithm.max_inflight_groups,
            layout.max_inflight_groups,
            "inflight_groups",
            f"{layout.max_inflight_groups * algorithm.group_size} rollouts in flight are "
            f"{layout.max_inflight_groups * algorithm.group_size / algorithm.batch_size:.2f} batches; the lag bound is "
            f"{algorithm.max_off_policy_steps}",
        ),
    ]
    for name in ("dp_replicate", "dp_shard", "cp", "ep"):
        asked = "auto" if asked_parallel == "auto" else getattr(asked_parallel, name)
        found.append(
            _decision(
                f"trainer.parallel.{name}",
                asked,
                getattr(mesh, name),
                "solve",
                degree_reason(resolved, choice, name),
            )
        )
    found.append(
        _decision(
            "trainer.optimizer.offload",
            spec.trainer.optimizer.offload,
            mesh.offload,
            "solve",
            _memory_reason(resolved, mesh, offload="none")
            if mesh.offload == "cpu"
            else "its state fits beside the activations",
        )
    )
    found.append(
        _decision(
            "trainer.activation_checkpoint",
            spec.trainer.activation_checkpoint,
            mesh.activation_checkpoint,
            "solve",
            _memory_reason(resolved, mesh, activation_checkpoint=LIGHTER[mesh.activation_checkpoint])
            if mesh.activation_checkpoint in LIGHTER and resolved.gpu.device == "cuda"
            else "nothing needs to be computed twice",
        )
    )
    inference = spec.inference
    first = layout.engines[-1]
    found += [
        _decision("inference.tensor_parallel", inference.tensor_parallel, first.tp, "solve", _engine_reason(first)),
        _decision("inference.data_parallel", inference.data_parallel, first.dp, "solve", _engine_reason(first)),
        _decision(
            "inference.expert_parallel",
            inference.expert_parallel,
            str(first.expert_parallel).lower(),
            "shards_experts",
            _engine_reason(first),
        ),
        _decision(
            "inference.disaggregate",
            inference.disaggregate,
            str(len(layout.engines) > 1).lower(),
            "solve",
            f"rollouts of one batch take {choice.rollouts:.1f} s",
        ),
        _decision(
            "inference.kv_offload",
            inference.kv_offload,
            "mooncake" if layout.store else "none",
            "solve",
            "replay with prefill and decode apart needs the store as KV path"
            if layout.store
            else "KV stays in the engines' own memory",
        ),
        _decision(
            "inference.router",
            inference.router,
            layout.router,
            "solve",
            "one engine: nothing to route" if layout.router == "direct" else "sessions stay where their KV is",
        ),
    ]
    return tuple(found)


def _decision(
    path: str,
    asked: object,
    value: object,
    rule: str,
    reason: str,
    alternatives: tuple[Alternative, ...] = (),
) -> Decision:
    said = _said(asked).lower() if isinstance(asked, bool) else _said(asked)
    return Decision(path=path, value=str(value), asked=said, rule=rule, reason=reason, alternatives=alternatives)
