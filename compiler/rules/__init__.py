"""Every rule, in the order in which they are reported."""

from prlc.compiler.rules.kernels import fp8_needs_hopper
from prlc.compiler.rules.lifecycle import one_word_slurm_options, plain_paths
from prlc.compiler.rules.memory import hbm_fits, host_fits, pool_holds_a_sample
from prlc.compiler.rules.objective import step_time_reached
from prlc.compiler.rules.parallel_layout import (
    dense_has_no_experts,
    experts_divide,
    heads_divide,
    nodes_for_engines,
    one_pinned_side,
    sequence_divides,
    tensor_parallel_in_a_node,
    whole_context_groups,
)
from prlc.compiler.rules.replay import replay_apart_needs_the_store, replay_needs_a_router
from prlc.compiler.rules.rule import LayoutRule, SpecRule
from prlc.compiler.rules.spec_shapes import (
    one_objective,
    rollout_fits_sequence,
    whole_groups,
    within_positions,
)
from prlc.compiler.rules.staleness import episode_within_bound, lag_below_bound
from prlc.compiler.rules.trainable import runs_in_this_release

# judged before anything is solved
SPEC_RULES: tuple[SpecRule, ...] = (
    whole_groups,
    one_objective,
    within_positions,
    rollout_fits_sequence,
    whole_context_groups,
    experts_divide,
    dense_has_no_experts,
    sequence_divides,
    heads_divide,
    tensor_parallel_in_a_node,
    nodes_for_engines,
    one_pinned_side,
    fp8_needs_hopper,
    replay_needs_a_router,
    episode_within_bound,
    plain_paths,
    one_word_slurm_options,
)

# judged on the layout that was chosen, with its ledgers
LAYOUT_RULES: tuple[LayoutRule, ...] = (
    replay_apart_needs_the_store,
    lag_below_bound,
    hbm_fits,
    host_fits,
    pool_holds_a_sample,
    step_time_reached,
    runs_in_this_release,
)

__all__ = ["LAYOUT_RULES", "SPEC_RULES", "LayoutRule", "SpecRule"]
