"""Counts of steps that must agree with each other, and settings that nobody would read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

LARGEST_SEED = 2**32 - 1


@spec_rule("PRL305", refused={"seed": -1}, accepted={"seed": 2**32 - 1})
def seed_in_range(resolved: Resolved) -> Iterator[Diagnostic]:
    """A seed is one that every generator takes.

    Inequality: 0 <= seed <= 2^32 - 1
    Source: numpy.random.seed, which vLLM calls with its --seed, takes 32 bits without a sign.
    Cure: a number in that range.
    """
    seed = resolved.spec.seed
    if not 0 <= seed <= LARGEST_SEED:
        yield finding(
            "PRL305",
            f"no generator takes the seed {seed}",
            resolved.span(("seed",)),
            label=f"must be in 0 .. {LARGEST_SEED}",
            rule="0 <= seed <= 2^32 - 1",
            help=f"seed: {seed % 2**32}",
        )


@spec_rule(
    "PRL355",
    refused={"algorithm": {"max_steps": 10}, "trainer": {"optimizer": {"warmup_steps": 10}}},
    accepted={"algorithm": {"max_steps": 100}, "trainer": {"optimizer": {"warmup_steps": 10}}},
)
def warmup_ends(resolved: Resolved) -> Iterator[Diagnostic]:
    """The warm-up ends before the run does.

    Inequality: warmup_steps < max_steps
    Source: the learning rate grows linearly over warmup_steps and reaches lr only after them.
    Cure: fewer warm-up steps, or a longer run.
    """
    warmup, steps = resolved.spec.trainer.optimizer.warmup_steps, resolved.spec.algorithm.max_steps
    if warmup and warmup >= steps:
        yield finding(
            "PRL355",
            f"the run ends after {steps} steps, within its warm-up of {warmup}: the learning rate is never reached",
            resolved.span(("trainer", "optimizer", "warmup_steps")),
            label=f"{warmup} >= {steps}",
            rule="warmup_steps < max_steps",
            help=f"warmup_steps: {steps // 10}",
        )


@spec_rule(
    "PRL356",
    refused={"algorithm": {"max_steps": 100, "evaluate_every": 200}},
    accepted={"algorithm": {"max_steps": 100, "evaluate_every": 20}},
)
def intervals_within_the_run(resolved: Resolved) -> Iterator[Diagnostic]:
    """What happens every n steps happens within the run (warning).

    Inequality: evaluate_every <= max_steps and checkpoint_every <= max_steps, where the spec says them
    Source: the last step always has a checkpoint and an evaluation; a longer interval adds none, and a run that
    is killed before its end then has nothing to resume from.
    Cure: a shorter interval, or a longer run.
    """
    spec = resolved.spec
    for path, every in (
        (("algorithm", "evaluate_every"), spec.algorithm.evaluate_every),
        (("trainer", "checkpoint_every"), spec.trainer.checkpoint_every),
    ):
        if resolved.said(*path) and every > spec.algorithm.max_steps:
            yield finding(
                "PRL356",
                f"{path[-1]} is longer than the run: nothing happens before the last step",
                resolved.span(path),
                label=f"{every} > {spec.algorithm.max_steps}",
                rule=f"{path[-1]} <= max_steps",
                help=f"{path[-1]}: {max(1, spec.algorithm.max_steps // 5)}",
                severity="warning",
            )


@spec_rule(
    "PRL357",
    refused={"trainer": {"optimizer": {"lr": 0.0}}},
    accepted={"trainer": {"optimizer": {"lr": 1.0e-6}}},
)
def learning_rate_moves(resolved: Resolved) -> Iterator[Diagnostic]:
    """The learning rate moves the weights, and does not throw them away (warning).

    Inequality: 0 < lr < 0.1
    Source: AdamW's step is about lr a weight: at 0 no policy differs from the first, at 0.1 a weight of usual size
    is replaced in a few steps.
    Cure: 1e-6 is usual for large models, 1e-4 to 1e-3 for tiny ones.
    """
    rate = resolved.spec.trainer.optimizer.lr
    if not 0 < rate < 0.1:
        yield finding(
            "PRL357",
            "the learning rate is 0: the policy never changes"
            if rate == 0
            else f"a learning rate of {rate:g} diverges",
            resolved.span(("trainer", "optimizer", "lr")),
            label=f"{rate:g}",
            rule="0 < lr < 0.1",
            help="lr: 1.0e-6",
            severity="warning",
        )


@spec_rule(
    "PRL343",
    refused={"algorithm": {"router_replay": False, "compare_replay": "every_step"}},
    accepted={"algorithm": {"router_replay": True, "compare_replay": "every_step"}},
)
def compare_needs_replay(resolved: Resolved) -> Iterator[Diagnostic]:
    """A comparison with and without replay needs replay.

    Inequality: compare_replay said and not never => router_replay is not false, and the model has experts
    Source: the trainer compares its logprobs under replay with those of one more forward without it.
    Cure: leave compare_replay out, or router_replay: auto.
    """
    algorithm = resolved.spec.algorithm
    if not resolved.said("algorithm", "compare_replay") or algorithm.compare_replay == "never":
        return
    if algorithm.router_replay is False or not resolved.facts.num_experts:
        yield finding(
            "PRL343",
            f"compare_replay: {algorithm.compare_replay} has nothing to compare: there is no replay",
            resolved.span(("algorithm", "compare_replay")),
            label="would have no effect",
            help="leave compare_replay out" + (", or router_replay: auto" if resolved.facts.num_experts else ""),
        )


@spec_rule(
    "PRL353",
    refused={"algorithm": {"batch_size": 128, "group_size": 8, "max_inflight_groups": 4}},
    accepted={"algorithm": {"batch_size": 128, "group_size": 8, "max_inflight_groups": 16}},
)
def batch_in_flight(resolved: Resolved) -> Iterator[Diagnostic]:
    """A whole batch may be in flight (warning).

    Inequality: max_inflight_groups x group_size >= batch_size
    Source: with fewer in flight a batch is generated in several rounds, each as long as its slowest rollout.
    Cure: max_inflight_groups: auto.
    """
    algorithm = resolved.spec.algorithm
    groups = algorithm.max_inflight_groups
    if groups != "auto" and groups * algorithm.group_size < algorithm.batch_size:
        yield finding(
            "PRL353",
            f"{groups} groups in flight are {groups * algorithm.group_size} rollouts, and a batch has "
            f"{algorithm.batch_size}",
            resolved.span(("algorithm", "max_inflight_groups")),
            label=f"{groups} x {algorithm.group_size} = {groups * algorithm.group_size} < {algorithm.batch_size}",
            rule="max_inflight_groups * group_size >= batch_size",
            help=f"max_inflight_groups: {-(-algorithm.batch_size // algorithm.group_size)}, or auto",
            severity="warning",
        )


@spec_rule(
    "PRL344",
    refused={"prefer": ["router_replay", "router_replay"]},
    accepted={"prefer": ["disaggregate", "router_replay"]},
)
def every_wish_once(resolved: Resolved) -> Iterator[Diagnostic]:
    """The order of wishes names each of them once.

    Inequality: prefer is an order of router_replay and disaggregate
    Source: prlc.compiler.search.wishes, which asks who stands before whom.
    Cure: both names, the more important one first.
    """
    order = resolved.spec.prefer
    if sorted(order) != ["disaggregate", "router_replay"]:
        yield finding(
            "PRL344",
            "prefer must name each wish once",
            resolved.span(("prefer",)),
            label=f"{len(order)} names, {len(set(order))} different",
            help="prefer: [router_replay, disaggregate]",
        )
