"""Rules that a layout must obey to be chosen: those whose verdict is known without a forecast.

The plan judges the chosen layout by every rule once more, so that nothing here decides what is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.rules.compat import conditions_are_met, features_go_together
from prlc.compiler.rules.deepep import (
    decode_step_fits_the_buffers,
    hidden_has_kernels,
    ranks_hold_whole_experts,
    top_k_has_kernels,
)
from prlc.compiler.rules.engines import (
    hybrid_sides_are_alike,
    prefill_no_wider_than_decode,
    servers_share_nodes_evenly,
    store_segments_hold_blocks,
    whole_prompt_in_a_step,
)
from prlc.compiler.rules.fp8 import deep_gemm_takes_the_experts, fp8_blocks_fill_a_shard
from prlc.compiler.rules.replay import replay_apart_needs_the_store

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.compiler.rules.rule import LayoutRule
    from prlc.schema.diagnostics import Diagnostic

LAWS: tuple[LayoutRule, ...] = (
    features_go_together,
    conditions_are_met,
    fp8_blocks_fill_a_shard,
    deep_gemm_takes_the_experts,
    replay_apart_needs_the_store,
    ranks_hold_whole_experts,
    hidden_has_kernels,
    top_k_has_kernels,
    decode_step_fits_the_buffers,
    prefill_no_wider_than_decode,
    hybrid_sides_are_alike,
    servers_share_nodes_evenly,
    whole_prompt_in_a_step,
    store_segments_hold_blocks,
)


def broken(resolved: Resolved, layout: Layout) -> Diagnostic | None:
    """The first error of a layout, None where it is lawful."""
    for law in LAWS:
        for diagnostic in law(resolved, layout, ()):
            if diagnostic.severity == "error":
                return diagnostic
    return None
