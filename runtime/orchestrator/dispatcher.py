"""Groups in flight: started on the least loaded engine, kept there, cancelled when too old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prlc.runtime.environments.base import AnyEnvironment, RolloutFailed, Task
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, least_loaded
from prlc.runtime.orchestrator.ledger import Ledger, Reason
from prlc.runtime.orchestrator.rollout import Sample, Tokenizer, play
from prlc.schema.orchestrator import OrchestratorConfig

LET_GO = 2.0  # seconds that a cancelled rollout may hold up what comes next


@dataclass(eq=False)
class Group:
    """A group in flight."""

    slot: Slot
    version: int
    samples: list[Sample]
    task: asyncio.Task[None] | None = None
    broken: dict[int, str] = field(default_factory=dict)  # rollout -> why its environment failed

    @property
    def whole(self) -> list[Sample]:
        """The rollouts whose environment did not fail."""
        return [sample for sample in self.samples if sample.rollout not in self.broken]

    @property
    def oldest(self) -> int:
        """The oldest version in it; for a rollout without tokens the version at dispatch."""
        versions = [sample.oldest if sample.oldest >= 0 else self.version for sample in self.whole]
        return min(versions, default=self.version)


class Dispatcher:
    """Owns every rollout in flight.

    `finished` takes a group's samples. `failed` hears of a lost group and whether its cause is new: an engine
    takes all its groups with it. `broke` hears of a rollout that its environment lost: the others of its group go
    on, as long as two are left to compare.
    """

    def __init__(
        self,
        config: OrchestratorConfig,
        environment: AnyEnvironment,
        tokenizer: Tokenizer,
        slots: list[Slot],
        ledger: Ledger,
        finished: Callable[[list[Sample]], None],
        failed: Callable[[str, bool], None],
        broke: Callable[[str], None],
        attempt: int = 1,
    ) -> None:
        self.config, self.environment, self.tokenizer = config, environment, tokenizer
        self.slots, self.ledger = slots, ledger
        self.finished, self.failed, self.broke = finished, failed, broke
        self.groups: set[Group] = set()
        self.cursor = 0
        self.prefix = f"a{attempt}-"
        self.changed = asyncio.Event()
        self.leaving: set[asyncio.Task[None]] = set()  # cancelled groups whose environment still tidies up

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
        rollouts = [asyncio.create_task(self._rollout(group, sample, task)) for sample in group.samples]
        try:
            await asyncio.gather(*rollouts)
        except EngineFailure as error:
            new, group.slot.healthy = group.slot.healthy, False
            await _end(rollouts)
            self._leave(group)
            for sample in group.samples:
                self.ledger.drop(sample.rollout, "failed")
            self.failed(str(error), new)
            await self._abort(group.slot, group.samples)
        else:
            self._settle(group)
        finally:
            await _end(rollouts)
            self.changed.set()

    async def _rollout(self, group: Group, sample: Sample, task: Task) -> None:
        salt = f"v{group.version}"
        try:
            await play(sample, task, self.environment, self.tokenizer, group.slot, salt, self.config, self.prefix)
        except RolloutFailed as error:
            group.broken[sample.rollout] = str(error)
            self.broke(str(error))
            await self._abort(group.slot, [sample])

    def _settle(self, group: Group) -> None:
        whole = group.whole if len(group.whole) >= 2 else []
        self._leave(group)
        for sample in group.samples:
            if sample not in whole:
                self.ledger.drop(sample.rollout, "environment")
        if whole:
            self.finished(whole)
        else:
            self.failed(next(iter(group.broken.values())), True)

    async def _cancel(self, groups: list[Group], reason: Reason) -> None:
        mine = [group for group in groups if group in self.groups]
        for group in mine:
            self._leave(group)
            if group.task is not None:
                group.task.cancel()
            for sample in group.samples:
                self.ledger.drop(sample.rollout, reason)
        tasks = [group.task for group in mine if group.task is not None]
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=2 * LET_GO)  # each may take one in _end
            self.leaving |= slow
            for task in slow:
                task.add_done_callback(self.leaving.discard)
        await asyncio.gather(*(self._abort(group.slot, group.samples) for group in mine))

    async def _abort(self, slot: Slot, samples: list[Sample]) -> None:
        names = [sample.request for sample in samples if sample.request]
        if not names:
            return
        try:
            await slot.engine.abort(names)
        except EngineFailure:
            slot.healthy = False

    def _leave(self, group: Group) -> None:
        self.groups.discard(group)
        group.slot.groups -= 1


async def _end(rollouts: list[asyncio.Task[None]]) -> None:
    """Cancel what goes on. What needs longer to tidy up does so on its own; it is out of the books."""
    for rollout in rollouts:
        rollout.cancel()
    await asyncio.wait(rollouts, timeout=LET_GO)
