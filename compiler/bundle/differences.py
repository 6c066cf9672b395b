"""What two plans differ in, in words: the spec first, then what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from prlc.schema.plan import Launch, Plan

GIB = 2**30


def differences(a: Plan, b: Plan) -> list[str]:
    """One line a difference; empty where the plans agree in everything that is said here."""
    return [*_spec(a, b), *_layout(a, b), *_forecast(a, b), *_memory(a, b), *_decisions(a, b), *_launches(a, b),
            *_places(a, b), *_job(a, b), *_warnings(a, b)]  # fmt: skip


def _spec(a: Plan, b: Plan) -> Iterator[str]:
    before, after = (_leaves("", yaml.safe_load(plan.spec_text) or {}) for plan in (a, b))
    yield from _changed("spec", before, after)
    if a.compiler != b.compiler:
        yield f"compiler: {a.compiler} became {b.compiler}"


def _layout(a: Plan, b: Plan) -> Iterator[str]:
    before, after = (
        {row.role: f"nodes {row.nodes}, {row.gpus} GPUs, {row.layout}" for row in plan.table} for plan in (a, b)
    )
    yield from _changed("layout", before, after)
    if a.cluster.nodes != b.cluster.nodes:
        yield f"layout: {a.cluster.nodes} nodes became {b.cluster.nodes}"


def _forecast(a: Plan, b: Plan) -> Iterator[str]:
    before = {term.name: term.expected for term in (a.forecast, *a.forecast.terms)}
    for term in (b.forecast, *b.forecast.terms):
        if term.name in before and _apart(before[term.name], term.expected):
            yield f"forecast: {term.name}: {_ratio(before[term.name], term.expected, term.unit)}"


def _memory(a: Plan, b: Plan) -> Iterator[str]:
    before, after = ({(led.role, led.resource): led.total / GIB for led in plan.ledgers} for plan in (a, b))
    for key in sorted(before.keys() & after.keys()):
        if _apart(before[key], after[key]):
            yield f"memory: {key[0]} {key[1]}: {_ratio(before[key], after[key], 'GiB')}"


def _decisions(a: Plan, b: Plan) -> Iterator[str]:
    before = {decision.path: decision.value for decision in a.decisions}
    for decision in b.decisions:
        if decision.path in before and before[decision.path] != decision.value:
            yield f"decision: {decision.path}: {before[decision.path]} became {decision.value}: {decision.reason}"


def _launches(a: Plan, b: Plan) -> Iterator[str]:
    before, after = ({each.role: each for each in (*plan.checks, *plan.launches)} for plan in (a, b))
    for role in before.keys() - after.keys():
        yield f"command: {role}: gone"
    for role, launch in after.items():
        if role not in before:
            yield f"command: {role}: new"
        else:
            yield from _changed(f"command: {role}", _words(before[role]), _words(launch))


def _places(a: Plan, b: Plan) -> Iterator[str]:
    before, after = (
        {f"{role.name}-{e.index}": (e.node, e.port) for role in plan.topology.roles for e in role.endpoints}
        for plan in (a, b)
    )
    both = before.keys() & after.keys()
    moved = [name for name in after if name in both and before[name][0] != after[name][0]]
    other = [name for name in after if name in both and before[name][1] != after[name][1]]
    if moved:
        name = moved[0]
        yield f"places: {len(moved)} processes move, e.g. {name} from node {before[name][0]} to {after[name][0]}"
    if other:
        name = other[0]
        yield f"ports: {len(other)} processes listen elsewhere, e.g. {name} on {after[name][1]}, not {before[name][1]}"


def _job(a: Plan, b: Plan) -> Iterator[str]:
    yield from _changed("job", {f"--{n}": v for n, v in a.slurm.options}, {f"--{n}": v for n, v in b.slurm.options})
    if a.run_dir != b.run_dir:
        yield f"run directory: {a.run_dir} became {b.run_dir}"
    if a.environment_setup != b.environment_setup:
        yield f"environment: {a.environment_setup} became {b.environment_setup}"


def _warnings(a: Plan, b: Plan) -> Iterator[str]:
    before, after = ({f"{w.code} {w.message}" for w in plan.warnings} for plan in (a, b))
    yield from (f"warning gone: {text}" for text in sorted(before - after))
    yield from (f"warning new: {text}" for text in sorted(after - before))


def _words(launch: Launch) -> dict[str, str]:
    """A role's command as named parts. Tables hold nodes and ports, which are told as places."""
    parts = {"program": " ".join(launch.command)}
    said: dict[str, list[str]] = {}
    for flag in launch.flags:
        named = flag[0].startswith("-")
        said.setdefault(flag[0] if named else "arguments", []).append(" ".join(flag[1:] if named else flag))
    parts |= {name: values[0] if len(values) == 1 else f"{len(values)} values" for name, values in said.items()}
    parts |= {variable.name: variable.value for variable in launch.environment}
    parts["tasks a node"], parts["CPUs a task"] = str(launch.tasks_per_node), str(launch.cpus_per_task)
    return parts


def _changed(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            yield f"{what}: {name}: gone (was {_short(before[name])})"
        elif name not in before:
            yield f"{what}: {name}: new: {_short(after[name])}"
        elif before[name] != after[name]:
            yield f"{what}: {name}: {_short(before[name])} became {_short(after[name])}"


def _leaves(path: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, part in value.items() for k, v in _leaves(f"{path}.{key}".lstrip("."), part).items()}
    return {path: value}


def _apart(a: float, b: float) -> bool:
    return abs(a - b) > 0.001 * max(abs(a), abs(b))


def _ratio(a: float, b: float, unit: str) -> str:
    change = f" ({(b - a) / a:+.1%})" if a else ""
    name = "" if unit == "1" else f" {unit}"
    return f"{a:.4g}{name} became {b:.4g}{change}"


def _short(value: Any) -> str:
    text = str(value) if value != "" else "set"
    return text if len(text) <= 90 else text[:87] + "..."
