"""The books of a run: every rollout started is trained, dropped or waiting, at every moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Reason = Literal[
    "stale_inflight", "stale_queue", "zero_advantage", "failed", "environment", "lost_on_restart", "run_ended"
]
REASONS: tuple[Reason, ...] = (
    "stale_inflight",
    "stale_queue",
    "zero_advantage",
    "failed",
    "environment",
    "lost_on_restart",
    "run_ended",
)


class LedgerError(AssertionError):
    """A rollout went a way that does not exist, or the counts do not add up."""


@dataclass
class Ledger:
    """States of rollouts: in flight, then queued, then trained; dropped from either of the first two."""

    generated: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    inflight: set[int] = field(default_factory=set)
    queued: set[int] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """Rollouts in flight and queued."""
        return len(self.inflight) + len(self.queued)

    def start(self) -> int:
        """A new rollout in flight; returns its id."""
        rollout = self.generated
        self.generated += 1
        self.inflight.add(rollout)
        return rollout

    def queue(self, rollout: int) -> None:
        """In flight -> queued. Raises LedgerError."""
        self._leave(self.inflight, rollout, "queued")
        self.queued.add(rollout)

    def train(self, rollout: int) -> None:
        """Queued -> trained. Raises LedgerError."""
        self._leave(self.queued, rollout, "trained")
        self.trained += 1

    def drop(self, rollout: int, reason: Reason) -> None:
        """In flight or queued -> dropped. Raises LedgerError."""
        self._leave(self.inflight if rollout in self.inflight else self.queued, rollout, "dropped")
        self.dropped[reason] += 1

    def check(self) -> None:
        """Raises LedgerError unless generated = trained + dropped + waiting."""
        if self.generated != self.trained + sum(self.dropped.values()) + self.waiting:
            raise LedgerError(f"rollouts do not add up: {self.counters()}")

    def counters(self) -> dict[str, Any]:
        """The counters, for metrics and state."""
        return {
            "generated": self.generated,
            "trained": self.trained,
            "dropped": dict(self.dropped),
            "waiting": self.waiting,
        }

    @classmethod
    def restored(cls, counters: dict[str, Any]) -> Ledger:
        """The books of an earlier life: what waited then is lost_on_restart now. Raises LedgerError."""
        dropped = {**dict.fromkeys(REASONS, 0), **counters["dropped"]}
        dropped["lost_on_restart"] += counters["waiting"]
        ledger = cls(counters["generated"], counters["trained"], dropped)
        ledger.check()
        return ledger

    @staticmethod
    def _leave(state: set[int], rollout: int, target: str) -> None:
        if rollout not in state:
            raise LedgerError(f"rollout {rollout} cannot become {target}: it is not where it should be")
        state.remove(rollout)
