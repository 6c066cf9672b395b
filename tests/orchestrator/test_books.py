"""trained + dropped + waiting = generated, under any interleaving of what can happen to a rollout."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from prlc.runtime.environments.base import Policy, RolloutFailed, Task
from prlc.runtime.orchestrator.batcher import Batcher
from prlc.runtime.orchestrator.dispatcher import Dispatcher
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, Turn
from prlc.runtime.orchestrator.ledger import Ledger
from prlc.runtime.orchestrator.rollout import Sample
from prlc.runtime.orchestrator.updates import update_engines

from tests.orchestrator.test_orchestrator import Words, config

BROKEN = 63
CONFIG = config(
    routed_experts=False, group_size=3, batch_size=6, max_inflight_groups=4, max_off_policy_steps=1, admin_deadline=5.0
)


class Held:
    """An engine whose requests wait until the test lets one go."""

    def __init__(self, name: str) -> None:
        self.name, self.version, self.refuses = name, 0, False
        self.waiting: dict[str, asyncio.Future[int]] = {}

    async def generate(self, *, request_id: str, **asked: Any) -> Turn:
        future = self.waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            code = await future
        finally:
            del self.waiting[request_id]
        return Turn((code,), (-1.0,), (self.version,))

    async def abort(self, request_ids: list[str]) -> None:
        if self.refuses:
            raise EngineFailure("no abort")

    async def pause(self) -> None:
        if self.refuses:
            raise EngineFailure("no pause")

    async def load(self, version: int, folder: Path) -> None:
        self.version = version

    async def resume(self) -> None:
        pass


class Coded:
    """A turn's token is its reward, or says that the environment breaks."""

    name = "coded"

    async def __aenter__(self) -> Coded:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def task(self, split: Any, index: int) -> Task:
        return Task(index, split, "")

    async def play(self, task: Task, policy: Policy) -> float:
        code = (await policy.turn([1]))[0]
        if code == BROKEN:
            raise RolloutFailed("broken")
        return float(code)


class World:
    """The parts of an orchestrator that know of rollouts, and a second set of books to compare with theirs."""

    def __init__(self, engines: list[Held], counters: dict[str, Any] | None, step: int) -> None:
        self.slots = [Slot(engine, version=engine.version) for engine in engines]
        self.ledger = Ledger.restored(counters) if counters else Ledger()
        self.batcher = Batcher(CONFIG, self.ledger)
        self.version, self.step = step, step
        self.dispatcher = Dispatcher(
            CONFIG,
            Coded(),
            Words(),
            self.slots,
            self.ledger,
            self.batcher.add,
            lambda *_: None,
            lambda _: None,
        )

    def check(self) -> None:
        ledger = self.ledger
        ledger.check()
        flying = {sample.rollout for group in self.dispatcher.groups for sample in group.samples}
        queued = {sample.rollout for group in self.batcher.groups for sample in group}
        assert flying == ledger.inflight
        assert queued == ledger.queued
        assert not flying & queued
        for slot in self.slots:
            assert slot.groups == sum(group.slot is slot for group in self.dispatcher.groups)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def act(world: World, action: str, number: int, saved: list[dict[str, Any]], trained: list[list[Sample]]) -> None:
    engines: list[Any] = [slot.engine for slot in world.slots]
    waiting = [future for engine in engines for future in engine.waiting.values() if not future.done()]
    if action == "fill":
        world.dispatcher.fill(1 + number % 4)
    elif action in ("finish", "break", "lose") and waiting:
        future = waiting[number % len(waiting)]
        if action == "lose":
            future.set_exception(EngineFailure("lost"))
        else:
            future.set_result(BROKEN if action == "break" else number % 3)
    elif action == "finish all":
        for place, future in enumerate(waiting):
            future.set_result((number + place) % 3)
    elif action == "version" and world.version < world.step:
        world.version += 1
        await world.dispatcher.cancel_stale(world.step + 1)
        engines[0].refuses = number % 2 == 1
        await update_engines(world.slots, world.version, Path("x"), 5.0, lambda _: None)
    elif action == "batch":
        batch = world.batcher.form(world.step + 1)
        if batch is not None:
            trained.append(batch)
            assert all(world.step - sample.oldest <= CONFIG.max_off_policy_steps for sample in batch)
            assert all(sample.loss_mask.count(1) == 1 for sample in batch)
            world.step += 1
            saved[:] = [world.ledger.counters()]
            await world.dispatcher.cancel_stale(world.step + 1)
    elif action == "cancel":
        # What a stale group meets in the very step in which it ends.
        if waiting:
            waiting[number % len(waiting)].set_result(number % 3)
        await world.dispatcher.cancel_stale(world.step + 1 + number % 3)


ACTIONS = ["fill", "finish", "finish all", "break", "lose", "version", "batch", "cancel", "restart"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30)), max_size=60))
def test_books_balance_under_any_interleaving(script: list[tuple[str, int]]) -> None:
    async def scene() -> None:
        engines = [Held("a"), Held("b")]
        world, saved, trained = World(engines, None, 0), [], []
        ended = 0
        for action, number in script:
            if action == "restart":
                await world.dispatcher.cancel_all("run_ended")  # the process is gone; its books are as saved
                ended = saved[0]["generated"] if saved else 0
                kept = saved[0] if saved else None
                before = kept["waiting"] + kept["dropped"]["lost_on_restart"] if kept else 0
                trained = trained if kept else []
                engines = [Held("a"), Held("b")]
                for engine in engines:
                    engine.version = world.version
                world, version = World(engines, kept, world.step), world.version
                world.version = version
                assert world.ledger.generated == ended
                assert world.ledger.dropped["lost_on_restart"] == before
            else:
                await act(world, action, number, saved, trained)
                await settle()
            world.check()
            assert world.ledger.trained == sum(map(len, trained))
        await world.dispatcher.cancel_all("run_ended")
        for group in world.batcher.groups:
            for sample in group:
                world.ledger.drop(sample.rollout, "run_ended")
        world.batcher.groups = []
        world.check()
        assert world.ledger.waiting == 0
        assert world.ledger.generated == world.ledger.trained + sum(world.ledger.dropped.values())

    asyncio.run(scene())
