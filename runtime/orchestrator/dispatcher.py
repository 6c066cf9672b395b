"""Groups in flight: started on the least loaded engine, kept there, cancelled when too old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from prlc.runtime.environments.base import Environment
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, least_loaded
from prlc.runtime.orchestrator.ledger import Ledger, Reason
from prlc.runtime.orchestrator.rollout import Sample, Tokenizer, play
from prlc.schema.orchestrator import OrchestratorConfig


@dataclass(eq=False)
class Group:
    """A group in flight."""

    slot: Slot
    version: int
    samples: list[Sample]
    task: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> int:
        """The oldest version in it; for a rollout without tokens the version at dispatch."""
        return min(sample.oldest if sample.oldest >= 0 else self.version for sample in self.samples)


class Dispatcher:
    """Owns every rollout in flight. `finished` takes a group's samples; `failed` hears a loss."""

    def __init__(
        self,
        config: OrchestratorConfig,
        environment: Environment,
        tokenizer: Tokenizer,
        slots: list[Slot],
        ledger: Ledger,
        finished: Callable[[list[Sample]], None],
        failed: Callable[[str], None],
        attempt: int = 1,
    ) -> None:
        self.config, self.environment, self.tokenizer = config, environment, tokenizer
        self.slots, self.ledger, self.finished, self.failed = slots, ledger, finished, failed
        self.groups: set[Group] = set()
        self.cursor = 0
        self.prefix = f"a{attempt}-"
        self.changed = asyncio.Event()

    def fill(self, room: int) -> None:
        """Start up to `room` groups, within max_inflight_groups, while an engine is healthy."""
        for _ in range(min(room, self.config.max_inflight_groups - len(self.groups))):
            slot = least_loaded(self.slots)
            if slot is None:
                return
            samples = [Sample(self.ledger.start()) for _ in range(self.config.group_size)]
            group = Group(slot, slot.version, samples)
            slot.groups += 1
            self.groups.add(group)
            group.task = asyncio.create_task(self._play(group, self.cursor))
            self.cursor += 1

    async def cancel_stale(self, next_step: int) -> int:
        """Cancel groups too old even for batch `next_step`, the first they could be in; returns how many."""
        limit = self.config.max_off_policy_steps
        stale = [group for group in self.groups if (next_step - 1) - group.oldest > limit]
        await self._cancel(stale, "stale_inflight")
        return len(stale)

    async def cancel_all(self, reason: Reason) -> None:
        """Cancel everything in flight."""
        await self._cancel(list(self.groups), reason)

    async def _play(self, group: Group, index: int) -> None:
        task = self.environment.task("train", index)
        salt = f"v{group.version}"
        rollouts = [
            asyncio.create_task(
                play(sample, task, self.environment, self.tokenizer, group.slot, salt, self.config, self.prefix)
            )
            for sample in group.samples
        ]
        try:
            await asyncio.gather(*rollouts)
        except EngineFailure as error:
            for rollout in rollouts:
                rollout.cancel()
            await asyncio.gather(*rollouts, return_exceptions=True)
            group.slot.healthy = False
            self._leave(group)
            for sample in group.samples:
                self.ledger.drop(sample.rollout, "failed")
            self.failed(str(error))
            await self._abort(group)
        except asyncio.CancelledError:
            for rollout in rollouts:
                rollout.cancel()
            raise
        else:
            self._leave(group)
            self.finished(group.samples)
        finally:
            self.changed.set()

    async def _cancel(self, groups: list[Group], reason: Reason) -> None:
        for group in groups:
            if group not in self.groups:
                continue
            self._leave(group)
            if group.task is not None:
                group.task.cancel()
            for sample in group.samples:
                self.ledger.drop(sample.rollout, reason)
        await asyncio.gather(*(group.task for group in groups if group.task), return_exceptions=True)
        await asyncio.gather(*(self._abort(group) for group in groups))

    async def _abort(self, group: Group) -> None:
        names = [
            f"{self.prefix}{sample.rollout}-{turn}"
            for sample in group.samples
            for turn in range(self.config.sampling.max_turns)
        ]
        try:
            await group.slot.engine.abort(names)
        except EngineFailure:
            group.slot.healthy = False

    def _leave(self, group: Group) -> None:
        self.groups.discard(group)
        group.slot.groups -= 1
