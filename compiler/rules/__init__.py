"""Every rule, in the order in which they are reported."""

from prlc.compiler.rules.compat import (
    combinations_are_known,
    conditions_are_met,
    engines_know_the_model,
    features_go_together,
)
from prlc.compiler.rules.deepep import (
    decode_step_fits_the_buffers,
    degree_has_kernels,
    hidden_has_kernels,
    ranks_hold_whole_experts,
    top_k_has_kernels,
)
from prlc.compiler.rules.engines import (
    hybrid_sides_are_alike,
    one_controller_for_the_run,
    ports_are_free,
    prefill_no_wider_than_decode,
    router_carries_the_streams,
    servers_share_nodes_evenly,
    store_segments_hold_blocks,
    whole_prompt_in_a_step,
)
from prlc.compiler.rules.extrapolation import (
    engines_within_data,
    prefixes_outlive_pauses,
    sync_within_data,
    trainer_within_data,
)
from prlc.compiler.rules.fp8 import deep_gemm_takes_the_experts, fp8_blocks_fill_a_shard, fp8_blocks_fill_the_weights
from prlc.compiler.rules.held_values import held_values_are_kept
from prlc.compiler.rules.kernels import fp8_needs_hopper
from prlc.compiler.rules.lifecycle import (
    a_checkpoint_before_the_limit,
    one_word_slurm_options,
    plain_paths,
    shared_folders,
    slurm_options_need_slurm,
    time_limit_leaves_time,
)
from prlc.compiler.rules.losses import bounds_hold_one, muon_stays_on_the_gpu, stale_cap_is_used
from prlc.compiler.rules.memory import (
    files_fit,
    fits_beyond_its_band,
    hbm_fits,
    host_fits,
    pool_holds_a_sample,
)
from prlc.compiler.rules.mesh import degrees_make_the_world, expert_mesh_fits, processes_of_a_cpu_node
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
from prlc.compiler.rules.placement import (
    apart_needs_nodes,
    experts_to_share,
    launcher_reaches_the_nodes,
    nodes_on_the_cluster,
    ranks_share_experts,
    replicas_fill_nodes,
)
from prlc.compiler.rules.replay import replay_apart_needs_the_store, replay_needs_a_router
from prlc.compiler.rules.rule import LayoutRule, SpecRule
from prlc.compiler.rules.schedule import (
    batch_in_flight,
    compare_needs_replay,
    every_wish_once,
    intervals_within_the_run,
    learning_rate_moves,
    seed_in_range,
    warmup_ends,
)
from prlc.compiler.rules.secrets import no_secret
from prlc.compiler.rules.slurm import (
    expert_groups_under_a_leaf,
    known_extra_options,
    one_word_texts,
    pinned_container,
    ports_fit_the_block,
    time_to_work_and_to_save,
)
from prlc.compiler.rules.spec_shapes import (
    one_objective,
    rollout_fits_sequence,
    whole_groups,
    within_positions,
)
from prlc.compiler.rules.staleness import episode_within_bound, lag_below_bound, long_episodes_within_bound
from prlc.compiler.rules.trainable import runs_in_this_release
from prlc.compiler.rules.workload import (
    environment_is_known,
    environment_takes_its_arguments,
    limits_above_means,
    rollouts_have_turns,
    sampling_explores,
    tails_above_means,
    turn_limit_fits,
)

# judged before anything is solved
SPEC_RULES: tuple[SpecRule, ...] = (
    whole_groups,
    one_objective,
    within_positions,
    rollout_fits_sequence,
    seed_in_range,
    sampling_explores,
    tails_above_means,
    turn_limit_fits,
    limits_above_means,
    rollouts_have_turns,
    whole_context_groups,
    degrees_make_the_world,
    expert_mesh_fits,
    experts_divide,
    dense_has_no_experts,
    sequence_divides,
    heads_divide,
    processes_of_a_cpu_node,
    tensor_parallel_in_a_node,
    nodes_for_engines,
    one_pinned_side,
    nodes_on_the_cluster,
    launcher_reaches_the_nodes,
    apart_needs_nodes,
    ranks_share_experts,
    experts_to_share,
    replicas_fill_nodes,
    fp8_needs_hopper,
    fp8_blocks_fill_the_weights,
    replay_needs_a_router,
    compare_needs_replay,
    every_wish_once,
    episode_within_bound,
    batch_in_flight,
    warmup_ends,
    intervals_within_the_run,
    learning_rate_moves,
    plain_paths,
    one_word_slurm_options,
    slurm_options_need_slurm,
    time_limit_leaves_time,
    known_extra_options,
    pinned_container,
    one_word_texts,
    time_to_work_and_to_save,
    no_secret,
    shared_folders,
    environment_is_known,
    environment_takes_its_arguments,
    degree_has_kernels,
    bounds_hold_one,
    stale_cap_is_used,
    muon_stays_on_the_gpu,
)

# judged on the layout that was chosen, with its ledgers
LAYOUT_RULES: tuple[LayoutRule, ...] = (
    held_values_are_kept,
    features_go_together,
    conditions_are_met,
    combinations_are_known,
    engines_know_the_model,
    fp8_blocks_fill_a_shard,
    deep_gemm_takes_the_experts,
    replay_apart_needs_the_store,
    lag_below_bound,
    long_episodes_within_bound,
    a_checkpoint_before_the_limit,
    runs_in_this_release,
    hbm_fits,
    host_fits,
    pool_holds_a_sample,
    files_fit,
    fits_beyond_its_band,
    step_time_reached,
    ranks_hold_whole_experts,
    hidden_has_kernels,
    top_k_has_kernels,
    decode_step_fits_the_buffers,
    prefill_no_wider_than_decode,
    hybrid_sides_are_alike,
    servers_share_nodes_evenly,
    whole_prompt_in_a_step,
    router_carries_the_streams,
    store_segments_hold_blocks,
    one_controller_for_the_run,
    ports_are_free,
    ports_fit_the_block,
    expert_groups_under_a_leaf,
    trainer_within_data,
    engines_within_data,
    prefixes_outlive_pauses,
    sync_within_data,
)

__all__ = ["LAYOUT_RULES", "SPEC_RULES", "LayoutRule", "SpecRule"]
