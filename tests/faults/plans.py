"""Plans that between them use every launch path: what is true of all of them is true by construction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prlc.compiler.bundle.emit import build
from prlc.compiler.plan import plan
from prlc.compiler.rules.example import spec_text
from prlc.schema.plan import Launch, Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
AIR: Mapping[str, Any] = {"model": "glm-4.5-air", "cluster": "h200-28x8", "nodes": 8}
PARTS: Mapping[str, Mapping[str, Any]] = {
    "dense": {"model": "qwen3-8b"},
    "point-to-point": {
        **AIR,
        "algorithm": {"router_replay": False},
        "inference": {"disaggregate": True, "kv_offload": "none"},
    },
    "store": {**AIR, "inference": {"disaggregate": True, "kv_offload": "mooncake"}},
    "fp8": {**AIR, "inference": {"precision": "fp8", "disaggregate": False}},
    "wide": {
        "model": "glm-4.5",
        "cluster": "h200-28x8",
        "nodes": 20,
        "inference": {"tensor_parallel": 1, "data_parallel": 16, "disaggregate": False},
    },
}


@cache
def plans() -> Mapping[str, Plan]:
    """Name to plan."""
    texts = {path.stem: (path.read_text(), str(path)) for path in sorted(EXAMPLES.glob("*.yaml"))}
    texts |= {name: (spec_text(part), "run.yaml") for name, part in PARTS.items()}
    found = {}
    for name, (text, filename) in texts.items():
        made, diagnostics = plan(text, filename)
        assert made is not None, (name, [d.message for d in diagnostics if d.severity == "error"])
        found[name] = made
    return found


@cache
def bundles() -> Mapping[str, Mapping[str, str]]:
    """Name of a plan to its bundle's texts by path."""
    return {name: {path: text.decode() for path, text in build(made).items()} for name, made in plans().items()}


def launches(kind: str = "") -> list[tuple[str, Launch]]:
    """(plan, launch) of every role of a kind, or of all; `engine` also means prefill and decode."""
    kinds = {"engine": ("engine", "prefill", "decode")}.get(kind, (kind,))
    return [
        (name, launch)
        for name, made in plans().items()
        for launch in made.launches
        for role in made.topology.roles
        if role.name == launch.role and (not kind or role.kind in kinds)
    ]


def words(launch: Launch) -> list[str]:
    """Each flag as one text, and each variable as NAME=value."""
    return [" ".join(flag) for flag in launch.flags] + [f"{v.name}={v.value}" for v in launch.environment]
