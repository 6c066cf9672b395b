"""The queue of finished groups, and the batches made of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from prlc.runtime.orchestrator.advantages import advantages
from prlc.runtime.orchestrator.ledger import Ledger, Reason
from prlc.runtime.orchestrator.rollout import Sample
from prlc.schema.orchestrator import OrchestratorConfig

MOST_EQUAL = 1  # batches' worth of groups with equal rewards dropped for one batch; further ones are kept


@dataclass
class Batcher:
    """Groups leave in the order in which they finished."""

    config: OrchestratorConfig
    ledger: Ledger

    def __post_init__(self) -> None:
        if self.config.batch_size % self.config.group_size:
            raise ValueError("batch_size must be a multiple of group_size")
        self.groups: list[list[Sample]] = []
        self.equal = 0
        self.rewards: deque[float] = deque(maxlen=2 * self.config.batch_size)

    @property
    def groups_of_a_batch(self) -> int:
        """Groups that make a batch."""
        return self.config.batch_size // self.config.group_size

    @property
    def reward(self) -> float:
        """Mean reward of the last two batches' worth of finished rollouts, dropped ones too; 0 before the first.

        The mean of a batch says less: groups that always or never succeed are missing from it.
        """
        return sum(self.rewards) / len(self.rewards) if self.rewards else 0.0

    def add(self, group: list[Sample]) -> None:
        """Queue a finished group; one with equal rewards is dropped if so configured.

        A policy that always succeeds, or never, has such groups alone: then they fill the batch after all, at
        no gradient, so that the run goes on.
        """
        self.rewards.extend(sample.reward for sample in group)
        for sample, value in zip(
            group, advantages([sample.reward for sample in group], self.config.advantage), strict=True
        ):
            self.ledger.queue(sample.rollout)
            sample.advantage = value
        equal = len({sample.reward for sample in group}) == 1
        if self.config.drop_zero_advantage and equal and self.equal < MOST_EQUAL * self.groups_of_a_batch:
            self.equal += 1
            self._drop(group, "zero_advantage")
        else:
            self.groups.append(group)

    def form(self, step: int) -> list[Sample] | None:
        """Batch `step` (from 1), or None while too few groups are fresh enough.

        Lag at batch k = (k - 1) - oldest version of the rollout, so time in the queue counts.
        """
        for group in list(self.groups):
            if (step - 1) - min(sample.oldest for sample in group) > self.config.max_off_policy_steps:
                self.groups.remove(group)
                self._drop(group, "stale_queue")
        if len(self.groups) < self.groups_of_a_batch:
            return None
        taken, self.groups = self.groups[: self.groups_of_a_batch], self.groups[self.groups_of_a_batch :]
        self.equal = 0
        batch = [sample for group in taken for sample in group]
        for sample in batch:
            self.ledger.train(sample.rollout)
        return batch

    def _drop(self, group: list[Sample], reason: Reason) -> None:
        for sample in group:
            self.ledger.drop(sample.rollout, reason)
