"""The base that every rule's examples are parts of: a spec as text, and a small layout with a ledger."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml
from prlc.compiler.layout import EngineLayout, Layout, PortUse, StoreLayout, TrainerLayout
from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved

BASE: dict[str, Any] = {
    "name": "example",
    "model": "qwen3-30b-a3b",
    "cluster": "h200-1x8",
    "objective": {"minimize": "step_time"},
    "algorithm": {"batch_size": 128, "group_size": 8, "max_off_policy_steps": 4},
    "sequence": {"seq_len": 16384},
    "workload": {
        "environment": {"id": "lookup"},
        "turns": {"mean": 4},
        "new_tokens_per_turn": {"mean": 300},
        "output_tokens_per_turn": {"mean": 600},
        "tool_time": {"mean": "100ms"},
    },
    "trainer": {"optimizer": {"lr": 1.0e-6}},
}


def merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `part`, mapping by mapping; objective is replaced whole."""
    result = copy.deepcopy(dict(base))
    for key, value in part.items():
        deeper = isinstance(value, Mapping) and isinstance(result.get(key), dict) and key != "objective"
        result[key] = merged(result[key], value) if deeper else copy.deepcopy(value)
    return result


def spec_text(part: Mapping[str, Any]) -> str:
    """run.yaml of an example."""
    return yaml.safe_dump(merged(BASE, part), sort_keys=False)


def adjusted(resolved: Resolved, part: Mapping[str, Any]) -> Resolved:
    """The resolved spec of a layout rule's example, with what it changes: {"facts", "model", "cluster"}."""
    return dataclasses.replace(
        resolved,
        facts=dataclasses.replace(resolved.facts, **part.get("facts", {})),
        model=dataclasses.replace(resolved.model, **part.get("model", {})),
        cluster=dataclasses.replace(resolved.cluster, **part.get("cluster", {})),
    )


def layout_of(part: Mapping[str, Any]) -> tuple[Layout, tuple[Ledger, ...]]:
    """Layout and ledgers of a layout rule's example."""
    trainer = TrainerLayout(
        nodes=(0,),
        ranks_per_node=4,
        dp_replicate=1,
        dp_shard=4,
        cp=1,
        ep=4,
        offload="none",
        activation_checkpoint="full",
        micro_batch_tokens=16384,
    )
    engine = EngineLayout(
        role="engine",
        nodes=(0,),
        replicas=4,
        tp=1,
        dp=1,
        ep=1,
        all2all="none",
        max_model_len=16384,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        kv_bytes=2**34,
        kv_tokens=200_000,
    )
    roles = part.get("roles", ("engine",))
    sides = part.get("engines", ({},) * len(roles))
    store = StoreLayout(master_node=0, nodes=(0,), segment_bytes=0) if "store" in part else None
    layout = Layout(
        target="slurm",
        nodes=1,
        trainer=dataclasses.replace(trainer, **part.get("trainer", {})),
        engines=tuple(
            dataclasses.replace(engine, role=role, **part.get("engine", {}), **side)
            for role, side in zip(roles, sides, strict=True)
        ),
        orchestrator_node=0,
        router="vllm-router",
        router_node=0,
        store=dataclasses.replace(store, **part["store"]) if store else None,
        router_replay=True,
        max_inflight_groups=16,
        ports=tuple(
            PortUse(node=node, port=port, role=role, index=0, purpose=purpose)
            for node, port, role, purpose in part.get("ports", ())
        ),
    )
    wanted = part.get("ledger", {"role": "trainer", "resource": "hbm", "capacity": 1, "bytes": 1})
    ledger = Ledger(
        role=wanted["role"],
        resource=wanted["resource"],
        capacity=wanted["capacity"],
        entries=(LedgerEntry(what="weights", phase="always", bytes=wanted["bytes"], formula="example"),),
        band=wanted.get("band", (1.0, 1.0)),
    )
    return dataclasses.replace(layout, **part.get("layout", {})), (ledger,)
