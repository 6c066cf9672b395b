"""The orchestrator's loop: watch for versions, keep groups in flight, ship batches, keep notes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from prlc.runtime.environments.base import AnyEnvironment
from prlc.runtime.ops.files import complete_numbers
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.orchestrator import state
from prlc.runtime.orchestrator.batcher import Batcher
from prlc.runtime.orchestrator.dispatcher import Dispatcher
from prlc.runtime.orchestrator.engines import Slot
from prlc.runtime.orchestrator.evaluation import evaluate
from prlc.runtime.orchestrator.ledger import Ledger
from prlc.runtime.orchestrator.rollout import Sample, Tokenizer
from prlc.runtime.orchestrator.statistics import statistics
from prlc.runtime.orchestrator.updates import update_engines
from prlc.runtime.transport.retire import retire_batches
from prlc.schema.orchestrator import OrchestratorConfig

MOST_FAILURES = 200  # times that groups were lost in a row, with none finished between
RETRY_AFTER = 2.0  # seconds between two tries to bring back an engine


class Notes(Protocol):
    """Where events and metrics go."""

    def emit(self, name: str, **fields: Any) -> None:
        """One event."""
        ...

    def log(self, step: int, **values: Any) -> None:
        """Metrics of a step."""
        ...


class OrchestratorError(RuntimeError):
    """The run cannot go on."""


class Loop:
    """One life of the orchestrator. `ship(step, samples)` writes a batch; `base` holds version 0."""

    def __init__(
        self,
        config: OrchestratorConfig,
        paths: RunPaths,
        base: Path,
        environment: AnyEnvironment,
        tokenizer: Tokenizer,
        slots: list[Slot],
        ship: Callable[[int, list[Sample]], None],
        notes: Notes,
        attempt: int = 1,
        poll: float = 0.05,
    ) -> None:
        self.config, self.paths, self.base, self.slots = config, paths, base, slots
        self.environment, self.tokenizer, self.ship, self.notes, self.poll = (
            environment,
            tokenizer,
            ship,
            notes,
            poll,
        )
        before = state.newest(paths)
        self.step = before.step if before else 0
        self.ledger = Ledger.restored(before.counters) if before else Ledger()
        self.batcher = Batcher(config, self.ledger)
        self.dispatcher = Dispatcher(
            config, environment, tokenizer, slots, self.ledger, self._finished, self._failed, self._broke, attempt
        )
        self.dispatcher.cursor = before.cursor if before else config.seed * 1_000_000
        self.version = 0
        self.failures, self.cause = 0, ""
        self.last: dict[str, float] = {}
        self.evaluation: dict[str, float] = {}
        self.since = self.served_at = self.shipped_at = time.monotonic()
        self.reviving: dict[int, asyncio.Task[None]] = {}  # by place in slots
        self.retry_at: dict[int, float] = {}
        self.evaluating: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the last policy is evaluated. Raises OrchestratorError, LedgerError, OSError."""
        self.version = self._newest_version()
        if self.version:
            await self._update()
        await self._retire()
        while self.step < self.config.max_steps:
            await self._watch()
            self._fill()
            if self.version >= self.step - self.config.lead_batches:
                await self._try_ship()
                self.since = time.monotonic()
            self._check_deadlines()
            await self._pause()
        await self.dispatcher.cancel_all("run_ended")
        for group in self.batcher.groups:
            for sample in group:
                self.ledger.drop(sample.rollout, "run_ended")
        self.batcher.groups = []
        self.ledger.check()
        self.since = time.monotonic()
        while self.version < self.config.max_steps:
            await self._watch()
            self._check_deadlines()
            await self._pause()
        await self._last_evaluation()
        for revival in self.reviving.values():
            revival.cancel()
        self.notes.emit("orchestrator_done", **self.ledger.counters())

    def _newest_version(self) -> int:
        return max(complete_numbers(self.paths.policies), default=0)

    async def _watch(self) -> None:
        before, newest = self.version, self._newest_version()
        if newest > before:
            self.version, self.since = newest, time.monotonic()
            await self.dispatcher.cancel_stale(self.step + 1)
            await self._update()
            await self._retire()
            every = self.config.evaluation.every_steps
            due = every and newest // every > before // every  # versions may be skipped
            if due and newest < self.config.max_steps and self._idle():
                self.evaluating = asyncio.create_task(self._evaluate(newest))
        self._revive()

    async def _update(self) -> None:
        """Bring the healthy engines to the newest version; the others come back on their own."""
        began = time.monotonic()
        await self._bring([slot for slot in self.slots if slot.healthy])
        self.notes.emit("weights", version=self.version, seconds=round(time.monotonic() - began, 3))

    async def _bring(self, slots: list[Slot]) -> None:
        folder = self.paths.policy(self.version) if self.version else self.base
        await update_engines(slots, self.version, folder, self.config.admin_deadline, self._engine_failed)

    async def _retire(self) -> None:
        await asyncio.to_thread(retire_batches, self.paths.batches, self.paths.checkpoints)

    def _revive(self) -> None:
        """Bring back lost engines, each beside the loop: one that hangs must not hold up the others."""
        now = time.monotonic()
        for place, slot in enumerate(self.slots):
            revival = self.reviving.get(place)
            if revival is not None and revival.done():
                revival.result()
                del self.reviving[place]
                self.retry_at[place] = now + RETRY_AFTER
            if slot.healthy and slot.version < self.version:
                slot.healthy = False  # its revival began under an older version
            if not slot.healthy and place not in self.reviving and now >= self.retry_at.get(place, 0.0):
                self.reviving[place] = asyncio.create_task(self._bring([slot]))

    def _fill(self) -> None:
        for group in list(self.dispatcher.groups):
            if group.task is not None and group.task.done() and not group.task.cancelled():
                error = group.task.exception()
                if error is not None:
                    raise OrchestratorError(f"a rollout ended by a fault of its own: {error!r}") from error
        queue = self.batcher.groups_of_a_batch * (1 + self.config.lead_batches)
        self.dispatcher.fill(max(0, queue - len(self.batcher.groups)))
        if self.failures >= MOST_FAILURES:
            raise OrchestratorError(f"{self.failures} groups failed in a row; the last one: {self.cause}")

    async def _try_ship(self) -> None:
        step = self.step + 1
        batch = self.batcher.form(step)
        self.ledger.check()
        if batch is None:
            return
        state.save(self.paths, state.State(step, self.dispatcher.cursor, self.ledger.counters()))
        # Gigabytes of tokens and expert rows: the loop goes on meanwhile.
        await asyncio.to_thread(self.ship, step, batch)
        self.step = step
        self._report(batch)
        await self.dispatcher.cancel_stale(self.step + 1)

    def _report(self, batch: list[Sample]) -> None:
        now = time.monotonic()
        seconds, self.shipped_at = max(now - self.shipped_at, 1e-9), now
        found = statistics(batch, self.step)
        tokens = found["generated_length"] * len(batch)
        self.last = {"reward": self.batcher.reward, **found, "tokens_per_second": tokens / seconds}
        counters = self.ledger.counters()
        environment = self.config.environment.id
        self.notes.log(self.step, **self.last, environment=environment, version=self.version, **counters)
        lost = ", ".join(f"{name} {count}" for name, count in counters["dropped"].items() if count) or "none"
        print(
            f"step {self.step}/{self.config.max_steps}  reward {self.last['reward']:.3f}  lag {found['lag_mean']:.2f}"
            f" (max {found['lag_max']:.0f})  dropped {lost}  waiting {counters['waiting']}"
            f"  {tokens / seconds:.0f} tokens/s",
            flush=True,
        )

    def numbers(self) -> dict[str, Any]:
        """How the run stands at this moment, then the last batch's statistics; a dict has one number a kind."""
        healthy = sum(slot.healthy for slot in self.slots)
        return {
            "step": self.step,
            "policy_version": self.version,
            "rollouts_generated_total": self.ledger.generated,
            "rollouts_trained_total": self.ledger.trained,
            "rollouts_dropped_total": dict(self.ledger.dropped),
            "rollouts_waiting": {"inflight": len(self.ledger.inflight), "queued": len(self.ledger.queued)},
            "engines": {"healthy": healthy, "lost": len(self.slots) - healthy},
            **self.last,
            **self.evaluation,
        }

    async def _evaluate(self, version: int) -> None:
        found = await evaluate(self.config, self.environment, self.tokenizer, self.slots, str(version))
        self.notes.emit(
            "evaluation", version=version, reward=found.reward, rollouts=found.rollouts, failed=found.failed
        )
        if found.reward is not None:
            self.evaluation = {"evaluation_reward": found.reward, "evaluation_version": version}
            print(f"evaluation of version {version}: reward {found.reward:.3f}", flush=True)

    async def _last_evaluation(self) -> None:
        if self.evaluating is not None:
            await self.evaluating
        if self.config.evaluation.rollouts:
            await self._evaluate(self.version)

    def _idle(self) -> bool:
        if self.evaluating is not None and self.evaluating.done():
            self.evaluating.result()
            self.evaluating = None
        return self.evaluating is None

    def _check_deadlines(self) -> None:
        now, longest = time.monotonic(), self.config.policy_deadline
        if any(slot.healthy for slot in self.slots):
            self.served_at = now
        if now - self.since > longest:
            raise OrchestratorError(f"no policy version after {self.version} within {longest:g} s")
        if now - self.served_at > longest:
            raise OrchestratorError(f"no engine came back within {longest:g} s; the last cause: {self.cause}")

    async def _pause(self) -> None:
        self.dispatcher.changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.dispatcher.changed.wait(), self.poll)

    def _finished(self, samples: list[Sample]) -> None:
        self.failures = 0
        self.batcher.add(samples)

    def _failed(self, cause: str, new: bool) -> None:
        self.failures, self.cause = self.failures + new, cause
        self.notes.emit("group_failed", cause=cause)

    def _broke(self, cause: str) -> None:
        self.notes.emit("rollout_failed", cause=cause)

    def _engine_failed(self, cause: str) -> None:
        self.cause = cause
        self.notes.emit("engine_failed", cause=cause)
        print(f"engine out of service: {cause}", flush=True)
