"""Evaluation: rollouts of eval tasks, never trained on, never dropped for staleness, outside the ledger."""

from __future__ import annotations

import asyncio

from prlc.runtime.environments.base import Environment
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, least_loaded
from prlc.runtime.orchestrator.rollout import Sample, Tokenizer, play
from prlc.schema.orchestrator import OrchestratorConfig


async def evaluate(
    config: OrchestratorConfig, environment: Environment, tokenizer: Tokenizer, slots: list[Slot], label: str
) -> float | None:
    """Mean reward of the same eval tasks every time; None where an engine failed, as a part would mislead."""

    async def one(index: int) -> float:
        slot = least_loaded(slots)
        if slot is None:
            raise EngineFailure("no engine is healthy")
        slot.groups += 1
        try:
            sample = Sample(index)
            task = environment.task("eval", index)
            salt = f"v{slot.version}"
            prefix = f"e{label}-"
            return (await play(sample, task, environment, tokenizer, slot, salt, config, prefix)).reward
        finally:
            slot.groups -= 1

    results = await asyncio.gather(*(one(index) for index in range(config.evaluation.rollouts)), return_exceptions=True)
    rewards = []
    for result in results:
        if isinstance(result, EngineFailure):
            return None
        if isinstance(result, BaseException):
            raise result
        rewards.append(result)
    return sum(rewards) / len(rewards) if rewards else None
