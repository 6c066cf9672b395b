"""What this release's own trainer can run; a plan beyond it is still a plan, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

# prlc.runtime.trainer.model refuses the rest at start; a test holds the two lists together
TRAINABLE = ("qwen3_moe", "qwen3")


@layout_rule(
    "PRL371",
    refused={"trainer": {"cp": 4}},
    accepted={"trainer": {"cp": 1}},
)
def runs_in_this_release(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The trainer that comes with this release can run the plan (warning).

    Inequality: model_type in (qwen3_moe, qwen3) and cp == 1 and trainer.precision != fp8
    Source: prlc.runtime.trainer.model, which refuses the rest when it starts.
    Cure: plan with it, and run a model, a mesh and a precision that the trainer has.
    """
    kind, cp = resolved.model.model_type, layout.trainer.cp
    missing = [
        text
        for absent, text in (
            (kind not in TRAINABLE, f"model_type {kind}"),
            (cp > 1, f"context parallelism (cp {cp})"),
            (resolved.spec.trainer.precision == "fp8", "fp8 training"),
        )
        if absent
    ]
    if missing:
        yield finding(
            "PRL371",
            f"planned, but the trainer of this release does not run {' or '.join(missing)} and refuses it",
            resolved.span(("trainer",) if kind in TRAINABLE else ("model",)),
            help=f"to run: model_type {' or '.join(TRAINABLE)}, trainer.parallel: {{cp: 1}}, precision: bf16",
            severity="warning",
        )
