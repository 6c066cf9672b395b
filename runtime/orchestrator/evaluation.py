"""Evaluation: rollouts of eval tasks, never trained on, never dropped for staleness, outside the ledger."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from prlc.runtime.environments.base import AnyEnvironment, RolloutFailed
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, least_loaded
from prlc.runtime.orchestrator.rollout import Sample, Tokenizer, play
from prlc.schema.orchestrator import OrchestratorConfig


@dataclass(frozen=True)
class Evaluated:
    """`reward` is the mean of the `rollouts` that ended; None where an engine failed or none ended."""

    reward: float | None
    rollouts: int
    failed: int


async def evaluate(
    config: OrchestratorConfig, environment: AnyEnvironment, tokenizer: Tokenizer, slots: list[Slot], label: str
) -> Evaluated:
    """The same eval tasks every time. A part of them would mislead, so a lost engine gives no reward."""

    async def one(index: int) -> float:
        slot = least_loaded(slots)
        if slot is None:
            raise EngineFailure("no engine is healthy")
        slot.groups += 1
        sample = Sample(index)
        try:
            task = environment.task("eval", index)
            salt = f"v{slot.version}"
            prefix = f"e{label}-"
            return (await play(sample, task, environment, tokenizer, slot, salt, config, prefix)).reward
        except (EngineFailure, RolloutFailed):
            if sample.request:
                with contextlib.suppress(EngineFailure):
                    await slot.engine.abort([sample.request])
            raise
        finally:
            slot.groups -= 1

    results = await asyncio.gather(*(one(index) for index in range(config.evaluation.rollouts)), return_exceptions=True)
    rewards = []
    for result in results:
        if isinstance(result, EngineFailure):
            return Evaluated(None, 0, len(results))
        if isinstance(result, float):
            rewards.append(result)
        elif not isinstance(result, RolloutFailed):
            raise result
    mean = sum(rewards) / len(rewards) if rewards else None
    return Evaluated(mean, len(rewards), len(results) - len(rewards))
