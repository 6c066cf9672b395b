"""No silent rewrite: every knob has an effect or is refused, and what the plan changed is in its decisions."""

from __future__ import annotations

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from prlc.compiler.bundle.emit import canonical
from prlc.compiler.plan import plan
from prlc.compiler.rules.example import BASE, merged, spec_text
from prlc.schema.codec import unit_of
from prlc.schema.plan import Plan
from prlc.schema.run import RunSpec

from tests.faults.plans import plans

Path = tuple[str, ...]
# one value more for keys whose type does not say what is sensible; {} keeps the base
VALUES: dict[str, Any] = {
    "name": "another",
    "model": "qwen3-8b",
    "checkpoint": "/weights/mine",
    "cluster": "h200-28x8",
    "target": "local",
    "objective.step_time": "10min",
    "objective.minimize": "gpus",
    "algorithm.router_replay": False,
    "algorithm.ratio_bounds": [0.5, 2.0],
    "algorithm.batch_size": 256,
    "algorithm.group_size": 16,
    "algorithm.max_inflight_groups": 40,
    "sequence.seq_len": 32768,
    "workload.environment.id": "copy",
    "workload.environment.args": {"keys": 32},
    "workload.max_turns": 20,
    "workload.max_output_tokens_per_turn": 900,
    "workload.prompt_tokens": {"mean": 5000},
    "trainer.parallel": {"cp": 2},
    "trainer.nodes": 2,
    "inference.tensor_parallel": 4,
    "inference.data_parallel": 8,
    "inference.prefill_nodes": 2,
    "inference.decode_nodes": 1,
    "inference.expert_parallel": False,
    "inference.kv_offload": "mooncake",
    "runtime.venv": "/shared/venv",
    "runtime.run_dir": "/shared/run",
    "runtime.base_port": 21000,
    "slurm.extra": ["--mem=100G"],
    "slurm.container": {"image": "/images/prlc.sqsh"},
    "slurm.mail_user": "me@example.com",
    "slurm.mail_type": "FAIL",
    "slurm.signal_time": "10min",
    "prefer": ["disaggregate", "router_replay"],
}
WIDE = {"cluster": "h200-28x8", "nodes": 6}  # knobs that need several nodes
NEEDS: dict[str, dict[str, Any]] = {
    "nodes": WIDE,
    "objective.step_time": WIDE,
    "objective.minimize": WIDE,
    "inference.expert_parallel": {**WIDE, "model": "glm-4.5-air"},
    "trainer.nodes": WIDE,
    "inference.disaggregate": WIDE,
    "inference.prefill_nodes": {**WIDE, "inference": {"disaggregate": True}},
    "inference.decode_nodes": {**WIDE, "inference": {"disaggregate": True}},
    "slurm.signal_time": {"slurm": {"time": "24h"}},
    "slurm.container.mounts": {"slurm": {"container": {"image": "/images/prlc.sqsh"}}},
    "algorithm.compare_replay": {"algorithm": {"router_replay": True}},
}


def leaves(kind: Any = RunSpec, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, annotation) of every key of a spec; a key that may be a mapping counts as one and its keys too."""
    for name, inner in get_type_hints(kind, include_extras=True).items():
        here = (*path, name)
        options = get_args(inner) if get_origin(inner) in (Union, types.UnionType) else (inner,)
        nested = [o for o in options if dataclasses.is_dataclass(o)]
        if not nested or ".".join(here) in VALUES:
            yield here, inner
        for option in nested:
            yield from leaves(option, here)


def another(path: Path, kind: Any) -> Any:
    """A value for a key that differs from its default and from the base."""
    dotted = ".".join(path)
    if dotted in VALUES:
        return VALUES[dotted]
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    said = place(BASE, path)
    for option in options:
        if unit_of(option):
            return "7min" if unit_of(option) == "seconds" else "3GiB"
        if get_origin(option) is Literal:
            others = [c for c in get_args(option) if c not in (said, default(path), "auto")]
            if others:
                return others[0]
        if option is bool:
            return default(path) is not True
        if option is int:
            return 7
        if option is float:
            return 0.5 if dotted.endswith(("temperature", "decay", "norm", "lr")) else 77.0
        if option is str:
            return "word"
        if get_origin(option) is tuple:
            return ["word"]
    raise AssertionError(f"no value for {dotted}")


def place(data: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return None
        data = data[key]
    return data


def default(path: Path) -> Any:
    kind: Any = RunSpec
    for key in path[:-1]:
        inner = get_type_hints(kind)[key]
        kind = next(o for o in (inner, *get_args(inner)) if dataclasses.is_dataclass(o))
    item = next(f for f in dataclasses.fields(kind) if f.name == path[-1])
    return None if item.default is dataclasses.MISSING else item.default


def outcome(part: dict[str, Any]) -> tuple[str, list[str]]:
    """(plan without the words of the spec, codes of diagnostics)."""
    made, found = plan(spec_text(part), "run.yaml")
    codes = sorted(d.code for d in found)
    if made is None:
        assert any(d.severity == "error" for d in found)
        return "", codes
    data = json.loads(canonical(made))
    for key in ("spec_text", "spec_sha256"):
        data.pop(key)
    for decision in data["decisions"]:
        decision.pop("asked")
    return json.dumps(data), codes


ALL = list(leaves())
# `strict` changes what warnings are, `algorithm.name` and formats have one value
ONE_VALUE = {path for path, kind in ALL if get_origin(kind) is Literal and len(get_args(kind)) == 1}


def test_every_key_is_looked_at() -> None:
    assert len(ALL) > 75
    assert {path for path in NEEDS if path not in {".".join(p) for p, _ in ALL}} == set()
    assert {".".join(path) for path in ONE_VALUE} <= {"algorithm.name", "trainer.optimizer.name"}


@pytest.mark.parametrize("path", [p for p, _ in ALL if p not in ONE_VALUE], ids=".".join)
def test_every_knob_has_an_effect_or_is_refused(path: Path) -> None:
    kind = dict(ALL)[path]
    dotted = ".".join(path)
    base = copy.deepcopy(NEEDS.get(dotted, {}))
    if path == ("strict",):
        part = {"workload": {"environment": {"id": "swe"}}}
        assert outcome(part)[0] != ""
        assert outcome({**part, "strict": True})[0] == ""
        return
    change: Any = another(path, kind)
    for key in reversed(path):
        change = {key: change}
    changed = merged(base, change)
    if path[:1] == ("objective",):
        changed["objective"] = change["objective"]
    assert outcome(changed) != outcome(base), f"{dotted} changed nothing"


def autos(value: Any, path: Path = ()) -> Iterator[Path]:
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        if dataclasses.is_dataclass(inner):
            yield from autos(inner, (*path, item.name))
        elif inner == "auto":
            yield (*path, item.name)


@pytest.mark.parametrize("name", sorted(plans()))
def test_every_auto_is_decided_with_a_reason(name: str) -> None:
    from prlc.compiler.resolve import resolve

    made = plans()[name]
    spec = resolved_spec(made, resolve)
    decided = {d.path: d for d in made.decisions}
    for path in autos(spec):
        dotted = ".".join(path)
        below = [p for p in decided if p == dotted or p.startswith(f"{dotted}.")]
        slurm_only = path[0] == "slurm" and made.cluster.target == "local"
        assert below or slurm_only, f"{dotted} is auto and nobody says what became of it"
    for decision in made.decisions:
        assert decision.reason, decision.path
        assert decision.rule, decision.path
        assert "\n" not in decision.reason


def resolved_spec(made: Plan, resolve: typing.Callable[..., Any]) -> RunSpec:
    from pathlib import Path as File

    found, diagnostics = resolve(made.spec_text, str(File(__file__).parents[2] / "examples" / "run.yaml"))
    assert found is not None, diagnostics
    return found.spec  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", sorted(plans()))
def test_what_the_plan_changed_is_in_its_decisions(name: str) -> None:
    made = plans()[name]
    decided = {d.path: d.value for d in made.decisions}
    trainer, orchestrator = made.trainer, made.orchestrator
    for path, value in {
        "trainer.parallel.ep": trainer.parallel.ep,
        "trainer.parallel.cp": trainer.parallel.cp,
        "trainer.parallel.dp_shard": trainer.parallel.dp_shard,
        "trainer.parallel.dp_replicate": trainer.parallel.dp_replicate,
        "trainer.optimizer.offload": trainer.optimizer.offload,
        "trainer.activation_checkpoint": trainer.activation_checkpoint,
        "trainer.micro_batch_tokens": trainer.micro_batch_tokens,
        "trainer.publish_dtype": trainer.publish_dtype,
        "workload.max_output_tokens_per_turn": orchestrator.sampling.max_tokens,
        "workload.max_turns": orchestrator.sampling.max_turns,
        "algorithm.max_inflight_groups": orchestrator.max_inflight_groups,
        "algorithm.router_replay": str(orchestrator.routed_experts).lower(),
        "runtime.run_dir": made.run_dir,
        "checkpoint": made.model.checkpoint,
        "target": made.cluster.target,
    }.items():
        assert decided[path] == str(value), path
    for launch in made.launches:
        for flag in ("--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization"):
            for words in launch.flags:
                if words[0] == flag:
                    key = f"{launch.role}.{flag[2:].replace('-', '_')}"
                    assert decided[key] == words[1], key


def test_a_time_that_is_rounded_says_so() -> None:
    made, found = plan(spec_text({"slurm": {"time": "754s"}}), "run.yaml")
    assert made is not None, found
    (decision,) = [d for d in made.decisions if d.path == "slurm.time"]
    assert (decision.asked, decision.value) == ("754s", "00:13:00")
