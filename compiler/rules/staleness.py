"""How old a trained rollout may be, against what the layout and the workload make of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import forecast
from prlc.compiler.rules.rule import finding, layout_rule, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

ROUNDS = 10  # of asking for a step within a bound
QUEUE_LAG = 0.8  # versions: the step being trained and its queue


@layout_rule(
    "PRL351",
    refused={"layout": {"max_inflight_groups": 400}},
    accepted={"layout": {"max_inflight_groups": 16}},
)
def lag_below_bound(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Rollouts in flight are few enough that most arrive within the bound (warning).

    Inequality: max_inflight_groups x group_size / batch_size + 0.8 < max_off_policy_steps
    Source: Little's law with time in policy versions: in flight / batch is their mean age.
    Cure: fewer groups in flight, or a larger max_off_policy_steps.
    """
    algorithm = resolved.spec.algorithm
    inflight = layout.max_inflight_groups * algorithm.group_size
    lag, bound = inflight / algorithm.batch_size + QUEUE_LAG, algorithm.max_off_policy_steps
    if lag < bound:
        return
    cure = int((bound - QUEUE_LAG) * algorithm.batch_size / algorithm.group_size)
    yield finding(
        "PRL351",
        f"the mean lag is about {lag:.1f} versions and the bound is {bound}: many rollouts will be stale",
        resolved.span(("algorithm", "max_off_policy_steps")),
        label=f"{inflight} in flight / {algorithm.batch_size} + {QUEUE_LAG} = {lag:.2f}, should be < {bound}",
        rule="max_inflight_groups * group_size / batch_size + 0.8 < max_off_policy_steps",
        help=f"max_off_policy_steps: {int(lag) + 1}"
        + (f", or max_inflight_groups: {cure}" if 0 < cure < layout.max_inflight_groups else ""),
        severity="warning",
    )


@spec_rule(
    "PRL352",
    refused={
        "objective": {"step_time": "10s"},
        "workload": {"turns": {"mean": 60}, "tool_time": {"mean": "4s"}},
    },
    accepted={"objective": {"step_time": "5min"}, "workload": {"tool_time": {"mean": "4s"}}},
)
def episode_within_bound(resolved: Resolved) -> Iterator[Diagnostic]:
    """A mean episode ends within the bound (warning). Checked where the objective names a step time.

    Inequality: turns x tool_time <= max_off_policy_steps x step_time, means
    Source: a rollout is dropped once its oldest token exceeds the bound; tools alone take that long.
    Cure: a larger max_off_policy_steps, or a longer step with more rollouts in it.
    """
    spec = resolved.spec
    if spec.objective.step_time is None:
        return
    steps, step = spec.algorithm.max_off_policy_steps, spec.objective.step_time
    episode = spec.workload.turns.mean * spec.workload.tool_time.mean
    bound = steps * step
    if episode > bound:
        yield finding(
            "PRL352",
            f"a mean episode waits {episode:.0f} s for its tools, and a rollout may live {bound:.0f} s",
            resolved.span(("algorithm", "max_off_policy_steps")),
            label=f"{episode:.0f} s > {steps} x {step:.0f} s",
            rule="turns * tool_time <= max_off_policy_steps * step_time",
            help=f"max_off_policy_steps: {int(episode / step) + 1}",
            severity="warning",
        )


def _wide_enough(resolved: Resolved, layout: Layout, episode: float, step: float) -> int:
    """A bound within which an episode (s) ends; a wider bound makes the step (s) shorter, so it is asked again.

    0 where none was found.
    """
    for _ in range(ROUNDS):
        if step <= 0:
            return 0
        steps = int(episode / step) + 1
        algorithm = dataclasses.replace(resolved.spec.algorithm, max_off_policy_steps=steps)
        spec = dataclasses.replace(resolved.spec, algorithm=algorithm)
        step = forecast(spec, resolved.facts, resolved.gpu, resolved.cluster, layout).expected
        if episode <= steps * step:
            return steps
    return 0


@layout_rule(
    "PRL354",
    refused={
        "spec": {"workload": {"turns": {"mean": 4, "p95": 4000}, "tool_time": {"mean": "60s"}}},
    },
    accepted={"spec": {"workload": {"turns": {"mean": 4, "p95": 8}, "tool_time": {"mean": "100ms"}}}},
)
def long_episodes_within_bound(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The longest twentieth of the episodes ends within the bound (warning).

    Inequality: the longer of turns.p95 x tool_time.mean, and turns.mean x tool_time.mean with one call of
    tool_time.p95, <= max_off_policy_steps x forecast of a step
    Source: a rollout whose oldest token exceeds the bound is dropped with all its work; tools alone take that long.
    Cure: a larger max_off_policy_steps, or workload.max_turns to cut such episodes.
    """
    spec = resolved.spec
    work, tool = spec.workload, spec.workload.tool_time
    turns = work.turns.p95 or work.turns.mean
    slow = work.turns.mean * tool.mean + max(0.0, (tool.p95 or 0.0) - tool.mean)
    episode = max(turns * tool.mean, slow)
    if not episode:
        return
    step = forecast(spec, resolved.facts, resolved.gpu, resolved.cluster, layout).expected
    bound = spec.algorithm.max_off_policy_steps * step
    if episode > bound:
        wide = _wide_enough(resolved, layout, episode, step)
        yield finding(
            "PRL354",
            f"one episode in twenty waits {episode:.0f} s for its tools and is dropped: a rollout may live "
            f"{bound:.0f} s",
            resolved.span(("algorithm", "max_off_policy_steps")),
            label=f"{episode:.0f} s > {spec.algorithm.max_off_policy_steps} x {step:.3g} s",
            rule="tools of the longest twentieth <= max_off_policy_steps * step",
            help=f"max_off_policy_steps: {wide}" if wide else "a shorter workload.tool_time",
            severity="warning",
        )
