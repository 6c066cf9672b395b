"""Counts and lengths of a spec that must agree with each other and with the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import of_model
from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic


@spec_rule(
    "PRL301",
    refused={"algorithm": {"batch_size": 250, "group_size": 16}},
    accepted={"algorithm": {"batch_size": 256, "group_size": 16}},
)
def whole_groups(resolved: Resolved) -> Iterator[Diagnostic]:
    """A batch holds whole groups.

    Inequality: batch_size % group_size == 0 and batch_size >= group_size
    Source: GRPO compares the rollouts of one task with each other; half a group has no advantage.
    Cure: the nearest multiple of group_size.
    """
    batch, group = resolved.spec.algorithm.batch_size, resolved.spec.algorithm.group_size
    if batch % group:
        below, above = batch // group * group, (batch // group + 1) * group
        yield finding(
            "PRL301",
            f"a batch of {batch} rollouts does not hold whole groups of {group}",
            resolved.span(("algorithm", "batch_size")),
            label=f"{batch} % {group} = {batch % group}, must be 0",
            rule="batch_size % group_size == 0",
            help=f"batch_size: {above}" if below == 0 else f"batch_size: {below} or {above}",
        )


@spec_rule(
    "PRL302",
    refused={"objective": {"step_time": "5min", "minimize": "gpus"}},
    accepted={"objective": {"step_time": "5min"}},
)
def one_objective(resolved: Resolved) -> Iterator[Diagnostic]:
    """The objective has exactly one key.

    Inequality: exactly one of objective.step_time and objective.minimize
    Source: a plan is the best of one order; step_time already means the fewest GPUs that reach it.
    Cure: keep one of the two keys, or leave objective out (minimize: step_time).
    """
    objective = resolved.spec.objective
    given = [name for name in ("step_time", "minimize") if getattr(objective, name) is not None]
    if len(given) != 1:
        yield finding(
            "PRL302",
            "an objective is either step_time or minimize, " + ("not both" if given else "and it is neither"),
            resolved.span(("objective",)),
            label=f"{len(given)} keys, must be 1",
            help="{step_time: 5min}: the fewest GPUs that reach it; {minimize: step_time}: the shortest step",
        )


@spec_rule("PRL303", refused={"sequence": {"seq_len": 10_000_000}}, accepted={"sequence": {"seq_len": 16384}})
def within_positions(resolved: Resolved) -> Iterator[Diagnostic]:
    """A sample is no longer than the model's positions.

    Inequality: seq_len <= max_position_embeddings
    Source: the model's config.json; beyond it RoPE is untrained and vLLM refuses max_model_len.
    Cure: a shorter sequence.seq_len, or a model whose config allows more.
    """
    length, limit = resolved.spec.sequence.seq_len, resolved.facts.max_position
    if length > limit:
        yield finding(
            "PRL303",
            f"samples of {length:,} tokens exceed the {limit:,} positions of {resolved.model.name}",
            resolved.span(("sequence", "seq_len")),
            label=f"{length} > {limit}",
            rule="seq_len <= max_position_embeddings",
            help=f"seq_len: {limit} is the longest",
            related=of_model(resolved, ("max_position_embeddings",), f"{limit} positions"),
        )


def _longer(limit: int, mean: float) -> str:
    """A seq_len that holds half as much again as the mean, within what the model takes."""
    if mean > limit:
        return f"fewer or shorter turns in workload: the model takes {limit} tokens at most"
    if mean * 1.5 > limit:
        return f"seq_len: {limit}, the most that the model takes, or a smaller workload.turns"
    return f"seq_len: {int(mean * 1.5)} or more, or a smaller workload.turns"


@spec_rule(
    "PRL304",
    refused={"sequence": {"seq_len": 1024}, "workload": {"turns": {"mean": 50}}},
    accepted={"sequence": {"seq_len": 16384}},
)
def rollout_fits_sequence(resolved: Resolved) -> Iterator[Diagnostic]:
    """A mean rollout fits in a sample; otherwise most rollouts are cut (warning).

    Inequality: prompt_tokens + turns x (new_tokens_per_turn + output_tokens_per_turn) <= seq_len, all means
    Source: a rollout is one sample of the trainer; what does not fit ends without its reward.
    Cure: a longer sequence.seq_len, or fewer or shorter turns in the workload.
    """
    work, length = resolved.spec.workload, resolved.spec.sequence.seq_len
    first = (work.prompt_tokens or work.new_tokens_per_turn).mean
    # the first turn's new tokens are the prompt
    later = max(0.0, work.turns.mean - 1) * work.new_tokens_per_turn.mean
    mean = first + later + work.turns.mean * work.output_tokens_per_turn.mean
    if mean > length:
        yield finding(
            "PRL304",
            f"a mean rollout is {mean:,.0f} tokens long and a sample holds {length:,}: most are cut",
            resolved.span(("sequence", "seq_len")),
            label=f"{mean:.0f} > {length}",
            help=_longer(resolved.facts.max_position, mean),
            severity="warning",
        )
