"""Settings of the policy loss and of the optimizer that must fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic


@spec_rule(
    "PRL391",
    refused={"algorithm": {"loss": "dapo", "ratio_bounds": [0.2, 0.28]}},
    accepted={"algorithm": {"loss": "dapo", "ratio_bounds": [0.8, 1.28]}},
)
def bounds_hold_one(resolved: Resolved) -> Iterator[Diagnostic]:
    """The bounds of the importance ratio hold 1.

    Inequality: ratio_bounds[0] <= 1 <= ratio_bounds[1], and the two differ
    Source: a token on policy has ratio 1; outside the bounds it would be clipped or dropped. Papers give an eps,
    these are the bounds themselves, 1 - eps and 1 + eps.
    Cure: bounds around 1, or auto for those of the loss's source.
    """
    bounds = resolved.spec.algorithm.ratio_bounds
    if bounds == "auto":
        return
    low, high = bounds
    if not low <= 1 <= high or low == high:
        yield finding(
            "PRL391",
            f"the bounds {low:g} and {high:g} of the importance ratio leave out tokens that are on policy",
            resolved.span(("algorithm", "ratio_bounds")),
            label="must hold 1, and be two",
            rule="low <= 1 <= high, low < high",
            help=f"ratio_bounds: [{1 - low:g}, {1 + high:g}], if these were eps" if low < 1 and high < 1 else "auto",
        )


@spec_rule(
    "PRL392",
    refused={"algorithm": {"loss": "gspo", "stale_cap": 2.0}},
    accepted={"algorithm": {"loss": "dapo", "stale_cap": 2.0}},
)
def stale_cap_is_used(resolved: Resolved) -> Iterator[Diagnostic]:
    """A cap on the weight of stale tokens has tokens to weigh, and does not damp those on policy.

    Inequality: stale_cap >= 1, max_off_policy_steps >= 1, loss is not gspo
    Source: gspo's ratio is one of a whole sample (arXiv 2507.18071), the cap is one of single tokens; without lag
    no token is stale; below 1 the weight min(ratio, stale_cap) damps tokens whose ratio is 1.
    Cure: leave stale_cap out, or another loss, a lag, a larger cap.
    """
    algorithm = resolved.spec.algorithm
    if algorithm.stale_cap is None:
        return
    for wrong, cause in (
        (algorithm.loss == "gspo", "gspo weighs whole samples, stale_cap single tokens"),
        (algorithm.max_off_policy_steps == 0, "with max_off_policy_steps 0 no token is stale: stale_cap does nothing"),
        (algorithm.stale_cap < 1, f"a stale_cap of {algorithm.stale_cap:g} damps tokens that are on policy"),
    ):
        if wrong:
            yield finding(
                "PRL392",
                cause,
                resolved.span(("algorithm", "stale_cap")),
                label="remove it" if algorithm.stale_cap >= 1 else "must be at least 1",
                rule="stale_cap >= 1, a loss of tokens, a lag",
                help="leave stale_cap out",
            )


@spec_rule(
    "PRL393",
    refused={"trainer": {"optimizer": {"name": "muon", "offload": "cpu"}}},
    accepted={"trainer": {"optimizer": {"name": "muon", "offload": "auto"}}},
)
def muon_stays_on_the_gpu(resolved: Resolved) -> Iterator[Diagnostic]:
    """The state of Muon stays on the GPU.

    Inequality: optimizer.name is not muon, or optimizer.offload is not cpu
    Source: Muon multiplies each matrix with itself five times a step (kellerjordan.github.io/posts/muon); where the
    state is offloaded the step runs on host cores.
    Cure: offload: none or auto, which for muon is none; or adamw.
    """
    optimizer = resolved.spec.trainer.optimizer
    if optimizer.name == "muon" and optimizer.offload == "cpu":
        yield finding(
            "PRL393",
            "muon cannot be offloaded to the CPU: its products belong on the GPU",
            resolved.span(("trainer", "optimizer", "offload")),
            label="must be none or auto",
            rule="name is not muon, or offload is not cpu",
            help="offload: none",
        )
