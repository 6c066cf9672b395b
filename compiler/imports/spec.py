"""The run spec of imported values: what is assumed where prime-rl has no such setting, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from prlc import catalog
from prlc.compiler.imports.primerl import Accounts

# a spec has these; prime-rl's configuration has no such setting, or none whose name is on record
WORKLOAD = {
    "environment": {"id": "lookup"},
    "turns": {"mean": 40},
    "new_tokens_per_turn": {"mean": 900},
    "output_tokens_per_turn": {"mean": 300},
    "tool_time": {"mean": "2s"},
}
LR = 1e-6
NEEDED = (
    "model",
    "algorithm.batch_size",
    "algorithm.group_size",
    "algorithm.max_off_policy_steps",
    "sequence.seq_len",
    "cluster",
)
ORDER = ("name", "model", "cluster", "nodes", "objective", "algorithm", "sequence", "workload", "trainer", "inference",
         "runtime")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """A value that the input does not give."""

    path: str
    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class Made:
    """The spec as a mapping, what in it is assumed, and the paths without which it is none."""

    spec: dict[str, Any]
    assumed: tuple[Assumed, ...]
    missing: tuple[str, ...]


def made(accounts: Accounts, name: str, cluster: str | None) -> Made:
    """The spec of the values; `cluster`: catalog name or path, None: the catalog's smallest that is large enough."""
    values = dict(accounts.values)
    if cluster is not None:
        values["cluster"] = cluster
    assumed = [one for one in assumptions(accounts, name, values) if not given(one.path, values)]
    values.update({one.path: one.value for one in assumed})
    missing = tuple(path for path in NEEDED if not given(path, values))
    return Made(spec=nested(values), assumed=tuple(assumed), missing=missing)


def given(path: str, values: Mapping[str, Any]) -> bool:
    """Whether a value stands at the path, below it or above it."""
    return any(one == path or one.startswith(f"{path}.") or path.startswith(f"{one}.") for one in values)


def assumptions(accounts: Accounts, name: str, values: Mapping[str, Any]) -> list[Assumed]:
    """Every value that prlc supplies where the input gives none."""
    found = [Assumed(path="name", value=plain(name), reason="from the file's name")]
    near = fitting(accounts.gpus_per_node, values.get("nodes"))
    if near is not None:
        found.append(Assumed(path="cluster", value=near, reason="GPUs are not said there; --cluster names yours"))
    for key, value in WORKLOAD.items():
        found.append(Assumed(path=f"workload.{key}", value=value, reason="a guess: the forecast rests on it"))
    found.append(Assumed(path="trainer.optimizer.lr", value=LR, reason="no part of what is planned; say yours"))
    if "nodes" not in values:
        reason = "up to the cluster's: say --set trainer.nodes=N and --set nodes=N for the run as it is"
        found.append(Assumed(path="nodes", value="auto", reason=reason))
    return found


def fitting(gpus: int | None, nodes: Any) -> str | None:
    """The smallest Slurm cluster of the catalog with such nodes, the largest where their number is not known."""
    entries = [(name, catalog.cluster(name)) for name in catalog.names("cluster")]
    like = [(one.nodes, name) for name, one in entries if one.launcher == "slurm" and gpus in (None, one.node.gpus)]
    if not isinstance(nodes, int):
        return max(like)[1] if like else None
    return min((one for one in like if one[0] >= nodes), default=(0, None))[1]


def plain(name: str) -> str:
    """A name as a run's name: letters, digits, dots, dashes and underscores, at most 64."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "imported"


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """{'trainer.parallel.ep': 8} -> {'trainer': {'parallel': {'ep': 8}}}, in the order of a spec."""
    spec: dict[str, Any] = {}
    for path, value in sorted(values.items(), key=lambda one: one[0].count(".")):
        *parents, last = path.split(".")
        place = spec
        for key in parents:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        place[last] = value
    return {key: spec[key] for key in sorted(spec, key=lambda k: (ORDER.index(k) if k in ORDER else len(ORDER), k))}


def text(made: Made, files: tuple[str, ...]) -> str:
    """The spec as YAML, with what is assumed above it."""
    head = [f"# from a configuration of prime-rl: {', '.join(files)}"]
    head += [f"# assumed {one.path}: {one.reason}" for one in made.assumed]
    return "\n".join(head) + "\n" + yaml.safe_dump(made.spec, sort_keys=False, width=120)
