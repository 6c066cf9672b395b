"""config/orchestrator.yaml: what the orchestrator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from prlc.schema.fields import Seconds, doc


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A task source: the environment's name and its arguments."""

    id: str = doc(
        "arithmetic, copy or lookup; or verifiers:<taskset>, a taskset package of verifiers 0.4 that is installed in "
        "the runtime's venv (pip install 'prlc[verifiers]')."
    )
    args: dict[str, Any] = doc("Arguments of the environment, passed on as they are.", factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are sampled."""

    temperature: float = doc("Temperature; logprobs are taken after it, on both sides.", default=1.0, minimum=0)
    max_tokens: int = doc("Most tokens of one turn.", minimum=1)
    max_turns: int = doc("Most model turns of one rollout.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluation rollouts, never trained on, never dropped for staleness."""

    every_steps: int = doc("Steps between evaluations; 0: only the last policy.", default=0, minimum=0)
    rollouts: int = doc("Rollouts of one evaluation.", default=64, minimum=0)


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """config/orchestrator.yaml. Paths are relative to the run directory unless absolute."""

    model: str = doc("Folder with the tokenizer.")
    seq_len: int = doc("Longest sample in tokens; longer rollouts are truncated and marked so.", minimum=1)
    max_steps: int = doc("Optimizer steps of the whole run.", minimum=1)
    batch_size: int = doc("Rollouts of one step.", minimum=1)
    group_size: int = doc("Rollouts of one task, compared with each other.", minimum=2)
    advantage: Literal["grpo", "mean"] = doc("grpo: (r - mean) / std of the group; mean: r - mean.")
    max_off_policy_steps: int = doc(
        "Largest lag of a trained rollout, in policy versions, queue time included.", minimum=0
    )
    max_inflight_groups: int = doc("Groups generated at once.", minimum=1)
    lead_batches: int = doc(
        "Batches that may be shipped ahead: batch k ships when version k - 1 - lead_batches is published.",
        default=1,
        minimum=0,
    )
    drop_zero_advantage: bool = doc("Drop groups whose rewards are all equal.", default=True)
    environment: Environment = doc("Training tasks.")
    sampling: Sampling = doc("Sampling of training rollouts.")
    evaluation: Evaluation = doc("Evaluation.", factory=Evaluation)
    routed_experts: bool = doc("Ask the engines for the experts that they used.")
    moe_layers: int = doc("Layers with experts in the engine's rows; 0 for a dense model.", default=0, minimum=0)
    moe_layer_ids: tuple[int, ...] | None = doc(
        "Where those layers stand in the engine's rows, from 0; left out: they are the last ones.", default=None
    )
    top_k: int = doc("Experts a token uses.", default=0, minimum=0)
    num_experts: int = doc("Experts of a layer; decides uint8 (<= 256) or uint16 rows.", default=0, minimum=0)
    route: Literal["direct", "router"] = doc("direct: sticky, least loaded engine; router: through vllm-router.")
    engine_roles: tuple[str, ...] = doc("Roles of the topology that serve generation.")
    request_deadline: Seconds = doc("Longest wait for one generation request.", default=600.0)
    admin_deadline: Seconds = doc("Longest wait for one call of a weight update.", default=120.0)
    policy_deadline: Seconds = doc("Longest wait for the next policy version.", default=1800.0)
    seed: int = doc("Seed of task order and advantages.", default=0)
