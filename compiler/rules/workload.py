"""What the spec says of a rollout must agree with itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, spec_rule
from prlc.schema.codec import format_quantity

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

SPREADS = ("turns", "new_tokens_per_turn", "output_tokens_per_turn", "tool_time", "prompt_tokens")
# environments of prlc.runtime.environments.builtin with their arguments; a test holds the two together
ENVIRONMENTS = {
    "arithmetic": ("name", "seed"),
    "copy": ("length", "name", "seed"),
    "lookup": ("keys", "name", "seed", "values"),
}
VERIFIERS = "verifiers:"  # before the name of a taskset of the verifiers package


@spec_rule(
    "PRL306",
    refused={"algorithm": {"temperature": 0.0}},
    accepted={"algorithm": {"temperature": 1.0}},
)
def sampling_explores(resolved: Resolved) -> Iterator[Diagnostic]:
    """Rollouts are sampled, not decoded greedily.

    Inequality: temperature > 0
    Source: at 0 vLLM takes the largest logit: the rollouts of a group are equal, their advantages are 0, and
    logprobs after the temperature (--logprobs-mode processed_logprobs) do not exist.
    Cure: temperature: 1.0, the distribution that the loss differentiates.
    """
    temperature = resolved.spec.algorithm.temperature
    if temperature <= 0:
        yield finding(
            "PRL306",
            "greedy decoding: every rollout of a group is the same, and no advantage is left to train on",
            resolved.span(("algorithm", "temperature")),
            label=f"{temperature:g}, must be above 0",
            rule="temperature > 0",
            help="temperature: 1.0",
        )


def _seconds(value: float) -> str:
    return format_quantity(value, "seconds")


@spec_rule(
    "PRL307",
    refused={"workload": {"turns": {"mean": 4, "p95": 2}}},
    accepted={"workload": {"turns": {"mean": 4, "p95": 8}}},
)
def tails_above_means(resolved: Resolved) -> Iterator[Diagnostic]:
    """A 95th percentile is not below its mean.

    Inequality: p95 >= mean, for every spread of the workload
    Source: the forecast stretches the mean by the tail; a tail below it shortens rollouts that the spec calls long.
    Cure: swap the two, or leave p95 out where there is no tail.
    """
    for name in SPREADS:
        spread = getattr(resolved.spec.workload, name)
        if spread is not None and spread.p95 is not None and spread.p95 < spread.mean:
            said = _seconds if name == "tool_time" else "{:g}".format
            yield finding(
                "PRL307",
                f"the 95th percentile of {name} is below its mean",
                resolved.span(("workload", name, "p95")),
                label=f"{spread.p95:g} < {spread.mean:g}",
                rule="p95 >= mean",
                help=f"{name}: {{mean: {said(spread.p95)}, p95: {said(spread.mean)}}} if the two are swapped, "
                "or leave p95 out",
            )


@spec_rule(
    "PRL308",
    refused={"workload": {"max_output_tokens_per_turn": 20000}},
    accepted={"workload": {"max_output_tokens_per_turn": 2000}},
)
def turn_limit_fits(resolved: Resolved) -> Iterator[Diagnostic]:
    """A turn's limit is no longer than a sample.

    Inequality: max_output_tokens_per_turn <= seq_len
    Source: vLLM refuses max_tokens beyond max_model_len; prlc does not shorten a number that was said.
    Cure: a limit below sequence.seq_len, or auto.
    """
    limit, length = resolved.spec.workload.max_output_tokens_per_turn, resolved.spec.sequence.seq_len
    if limit != "auto" and limit > length:
        yield finding(
            "PRL308",
            f"a turn may write {limit:,} tokens, but a whole sample holds {length:,}",
            resolved.span(("workload", "max_output_tokens_per_turn")),
            label=f"{limit} > {length}",
            rule="max_output_tokens_per_turn <= seq_len",
            help="max_output_tokens_per_turn: auto",
        )


@spec_rule(
    "PRL309",
    refused={"workload": {"turns": {"mean": 4}, "max_turns": 2}},
    accepted={"workload": {"turns": {"mean": 4}, "max_turns": 8}},
)
def limits_above_means(resolved: Resolved) -> Iterator[Diagnostic]:
    """Limits are above the means that they cut (warning).

    Inequality: max_turns >= turns.mean and max_output_tokens_per_turn >= output_tokens_per_turn.mean
    Source: a rollout cut by a limit ends without its reward; here that is the usual rollout.
    Cure: a higher limit, auto, or a smaller mean.
    """
    work = resolved.spec.workload
    for limit, spread in (("max_turns", "turns"), ("max_output_tokens_per_turn", "output_tokens_per_turn")):
        most, mean = getattr(work, limit), getattr(work, spread).mean
        if most != "auto" and most < mean:
            yield finding(
                "PRL309",
                f"{limit} cuts the usual rollout: {spread} has mean {mean:g}",
                resolved.span(("workload", limit)),
                label=f"{most} < {mean:g}",
                rule=f"{limit} >= {spread}.mean",
                help=f"{limit}: auto",
                severity="warning",
            )


@spec_rule(
    "PRL310",
    refused={"workload": {"turns": {"mean": 0.5}}},
    accepted={"workload": {"turns": {"mean": 1}}},
)
def rollouts_have_turns(resolved: Resolved) -> Iterator[Diagnostic]:
    """A rollout has a turn, and a turn writes something.

    Inequality: turns.mean >= 1 and output_tokens_per_turn.mean > 0
    Source: every rollout asks the engine at least once; without output there is nothing to train on.
    Cure: the mean over real rollouts, at least 1 turn.
    """
    work = resolved.spec.workload
    turns, written = work.turns.mean, work.output_tokens_per_turn.mean
    for name, mean, least, short in (
        ("turns", turns, "at least 1", turns < 1),
        ("output_tokens_per_turn", written, "above 0", written <= 0),
    ):
        if short:
            yield finding(
                "PRL310",
                f"rollouts of {mean:g} {name.replace('_', ' ')} train nothing",
                resolved.span(("workload", name, "mean")),
                label=f"must be {least}",
                rule="turns.mean >= 1 and output_tokens_per_turn.mean > 0",
                help=f"{name}: {{mean: 1}} is the smallest that makes sense",
            )


@spec_rule(
    "PRL372",
    refused={"workload": {"environment": {"id": "swe"}}},
    accepted={"workload": {"environment": {"id": "lookup"}}},
)
def environment_is_known(resolved: Resolved) -> Iterator[Diagnostic]:
    """The environment comes with this release, or is one of the verifiers package (warning).

    Inequality: environment.id in (arithmetic, copy, lookup) or environment.id starts with "verifiers:"
    Source: prlc.runtime.environments, which refuses another name when the orchestrator starts.
    Cure: one of the names, or an environment of the verifiers package, installed in the runtime's venv.
    """
    name = resolved.spec.workload.environment.id
    if name not in ENVIRONMENTS and not name.startswith(VERIFIERS):
        close = difflib.get_close_matches(name, ENVIRONMENTS, n=1)
        yield finding(
            "PRL372",
            f"no environment {name!r} comes with this release: the orchestrator will refuse it",
            resolved.span(("workload", "environment", "id")),
            label=f"known: {', '.join(ENVIRONMENTS)}, verifiers:<taskset>",
            help=f"did you mean {close[0]}?" if close else f"to run: id: lookup, or id: {VERIFIERS}{name}",
            severity="warning",
        )


@spec_rule(
    "PRL373",
    refused={"workload": {"environment": {"id": "lookup", "args": {"key": 32}}}},
    accepted={"workload": {"environment": {"id": "lookup", "args": {"keys": 32}}}},
)
def environment_takes_its_arguments(resolved: Resolved) -> Iterator[Diagnostic]:
    """An environment of this release is given arguments that it has.

    Inequality: every key of environment.args is an argument of the environment, for lookup, copy and arithmetic
    Source: prlc.runtime.environments.builtin; another argument ends the orchestrator when it starts.
    Cure: an argument that the environment has, or leave it out.
    """
    environment = resolved.spec.workload.environment
    known = ENVIRONMENTS.get(environment.id)
    for key in environment.args if known is not None else ():
        if key not in (known or ()):
            close = difflib.get_close_matches(str(key), known or (), n=1)
            yield finding(
                "PRL373",
                f"environment {environment.id} has no argument {key!r}",
                resolved.key_span(("workload", "environment", "args", key)),
                label="unknown argument",
                help=(f"did you mean {close[0]}? " if close else "") + f"arguments: {', '.join(known or ())}",
            )
