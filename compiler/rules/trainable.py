"""What this release's own trainer can run; a plan beyond it is still a plan, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, layout_rule
from prlc.schema.trainable import TRAINABLE, obstacles

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger


@layout_rule(
    "PRL371",
    refused={"trainer": {"cp": 3}},
    accepted={"trainer": {"cp": 4}},
)
def runs_in_this_release(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The trainer that comes with this release can run the plan (warning).

    Inequality: model_type is in prlc.schema.trainable, with heads that cp divides, and precision is not fp8
    Source: prlc.schema.trainable, the table that the trainer itself reads when it starts.
    Cure: plan with it, and run a model, a mesh and a precision that the trainer has; bf16 needs more memory than fp8.
    """
    config = {**resolved.model.config, "model_type": resolved.model.model_type}
    cp, precision = layout.trainer.cp, resolved.spec.trainer.precision
    model = obstacles(config, cp=1, precision="bf16")
    mesh = [o for o in obstacles(config, cp=cp, precision="bf16") if o not in model]
    numbers = [o for o in obstacles(config, cp=1, precision=precision) if o not in model]
    less = next((n for n in range(cp - 1, 1, -1) if obstacles(config, cp=n, precision="bf16") == model), 1)
    for missing, path, cure in (
        (model, ("model",), f"a model of the type {', '.join(TRAINABLE)}"),
        (mesh, ("trainer", "parallel", "cp"), f"trainer.parallel: {{cp: {less}}}"),
        (numbers, ("trainer", "precision"), "trainer.precision: bf16"),
    ):
        if missing:
            yield finding(
                "PRL371",
                f"planned, but the trainer of this release does not run {' or '.join(missing)} and refuses it",
                resolved.span(path),
                label="cannot run",
                help=cure,
                severity="warning",
            )
