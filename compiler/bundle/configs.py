"""config/trainer.yaml and config/orchestrator.yaml of a layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from prlc.catalog.params import config_of
from prlc.catalog.shapes import moe_layer_ids
from prlc.schema.orchestrator import Evaluation, OrchestratorConfig, Sampling
from prlc.schema.trainer import RATIO_BOUNDS, Checkpoint, Loss, Optimizer, Parallel, Replay, TrainerConfig

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.run import Algorithm

CPU_MICRO_BATCH_TOKENS = 4096  # one packed row of a tiny model; its attention mask is tokens^2 bits


def checkpoint_path(resolved: Resolved) -> str:
    """Weights that policy version 0 is read from: the spec's, else the model's own hub id."""
    return resolved.spec.checkpoint or resolved.model.hf_id or resolved.spec.model


def turn_limits(resolved: Resolved) -> tuple[int, int]:
    """(tokens of a turn, turns of a rollout): the spec's, else the 95th percentile, else twice the mean."""
    workload = resolved.spec.workload
    output, turns = workload.output_tokens_per_turn, workload.turns
    tokens = workload.max_output_tokens_per_turn
    limit = workload.max_turns
    wide = math.ceil(output.p95 if output.p95 is not None else 2 * output.mean)
    many = math.ceil(turns.p95 if turns.p95 is not None else 2 * turns.mean)
    return (
        max(1, min(resolved.spec.sequence.seq_len, wide if tokens == "auto" else int(tokens))),
        max(1, many if limit == "auto" else int(limit)),
    )


def policy_loss(algorithm: Algorithm) -> Loss:
    """The loss with its bounds: the spec's, else those of its source."""
    low, high = RATIO_BOUNDS[algorithm.loss] if algorithm.ratio_bounds == "auto" else algorithm.ratio_bounds
    return Loss(
        name=algorithm.loss,
        ratio_low=low,
        ratio_high=high,
        kl_weight=algorithm.kl_weight,
        stale_cap=algorithm.stale_cap,
    )


def trainer_config(resolved: Resolved, layout: Layout) -> TrainerConfig:
    """What the trainer reads."""
    spec, mesh, cpu = resolved.spec, layout.trainer, resolved.gpu.device == "cpu"
    optimizer = spec.trainer.optimizer
    publish: Literal["float32", "bfloat16"] = "float32" if spec.inference.precision == "fp32" else "bfloat16"
    return TrainerConfig(
        model=checkpoint_path(resolved),
        model_type=resolved.model.model_type,
        seq_len=spec.sequence.seq_len,
        max_steps=spec.algorithm.max_steps,
        precision=spec.trainer.precision,
        device=resolved.gpu.device,
        parallel=Parallel(dp_replicate=mesh.dp_replicate, dp_shard=mesh.dp_shard, cp=mesh.cp, ep=mesh.ep),
        micro_batch_tokens=max(CPU_MICRO_BATCH_TOKENS, mesh.micro_batch_tokens) if cpu else mesh.micro_batch_tokens,
        activation_checkpoint=mesh.activation_checkpoint,
        optimizer=Optimizer(
            name=optimizer.name,
            lr=optimizer.lr,
            weight_decay=optimizer.weight_decay,
            warmup_steps=optimizer.warmup_steps,
            schedule=optimizer.schedule,
            max_grad_norm=optimizer.max_grad_norm,
            offload=mesh.offload,
        ),
        loss=policy_loss(spec.algorithm),
        replay=Replay(enabled=layout.router_replay, compare=spec.algorithm.compare_replay),
        checkpoint=Checkpoint(every_steps=spec.trainer.checkpoint_every, keep=spec.trainer.keep_checkpoints),
        publish_dtype=publish,
        seed=spec.seed,
    )


def _places(resolved: Resolved) -> tuple[int, ...] | None:
    """Where layers with experts stand among all decoder layers, which vLLM's rows hold; None where dense ones lead."""
    places, layers = moe_layer_ids(config_of(resolved.model)), resolved.facts.layers
    return None if places == tuple(range(layers - len(places), layers)) else places


def orchestrator_config(resolved: Resolved, layout: Layout) -> OrchestratorConfig:
    """What the orchestrator reads."""
    spec, facts = resolved.spec, resolved.facts
    tokens, turns = turn_limits(resolved)
    algorithm = spec.algorithm
    return OrchestratorConfig(
        model=checkpoint_path(resolved),
        seq_len=spec.sequence.seq_len,
        max_steps=algorithm.max_steps,
        batch_size=algorithm.batch_size,
        group_size=algorithm.group_size,
        advantage=algorithm.advantage,
        max_off_policy_steps=algorithm.max_off_policy_steps,
        max_inflight_groups=layout.max_inflight_groups,
        environment=spec.workload.environment,
        sampling=Sampling(temperature=algorithm.temperature, max_tokens=tokens, max_turns=turns),
        evaluation=Evaluation(every_steps=algorithm.evaluate_every),
        routed_experts=layout.router_replay,
        moe_layers=facts.moe_layers if layout.router_replay else 0,
        moe_layer_ids=_places(resolved) if layout.router_replay else None,
        top_k=facts.top_k,
        num_experts=facts.num_experts,
        route="direct" if layout.router == "direct" else "router",
        engine_roles=tuple(e.role for e in layout.engines),
        seed=spec.seed,
    )
