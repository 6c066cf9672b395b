"""Where everything of a run lies. One place knows the layout; nobody else joins these names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """Paths below a run directory, on a filesystem that all nodes share."""

    root: Path

    @classmethod
    def from_environment(cls) -> RunPaths:
        """The run of this process. Raises KeyError where the launcher did not set PRLC_RUN_DIR."""
        return cls(Path(os.environ["PRLC_RUN_DIR"]))

    @property
    def policies(self) -> Path:
        """Folder of the published policy versions."""
        return self.root / "policy"

    @property
    def batches(self) -> Path:
        """Folder of the shipped batches."""
        return self.root / "batches"

    @property
    def checkpoints(self) -> Path:
        """Folder of the trainer's checkpoints."""
        return self.root / "checkpoints"

    @property
    def orchestrator_states(self) -> Path:
        """Folder of the orchestrator's states."""
        return self.root / "orchestrator"

    @property
    def failed(self) -> Path:
        """File that says why the run failed; its presence stops every process."""
        return self.root / "FAILED"

    def policy(self, version: int) -> Path:
        """Checkpoint of a policy version (= optimizer steps applied), from 1; version 0 is the base model."""
        return self.policies / f"step_{version:08d}"

    def batch(self, step: int) -> Path:
        """Batch that trains version step - 1 into version step, from 1."""
        return self.batches / f"step_{step:08d}"

    def checkpoint(self, step: int) -> Path:
        """Trainer state after `step` optimizer steps."""
        return self.checkpoints / f"step_{step:08d}"

    def orchestrator_state(self, step: int) -> Path:
        """Orchestrator state right after batch `step` was shipped."""
        return self.orchestrator_states / f"step_{step:08d}.json"

    def attempt(self, number: int) -> Path:
        """Folder of one attempt, from 1."""
        return self.root / "attempts" / str(number)

    @property
    def owner(self) -> Path:
        """File that says which job or process runs the run now, or ran it last."""
        return self.root / "OWNER"

    def token(self, attempt: int) -> Path:
        """The secret that every endpoint of one attempt wants; its owner alone can read it."""
        return self.attempt(attempt) / "token"

    def stop(self, attempt: int) -> Path:
        """File by which the launcher asks every agent of one attempt to stop its process in good order."""
        return self.attempt(attempt) / "STOP"

    def preflight(self, attempt: int) -> Path:
        """Folder of what preflight found on each node, in one attempt."""
        return self.attempt(attempt) / "preflight"

    def log(self, attempt: int, role: str, index: int) -> Path:
        """Output of one process in one attempt."""
        return self.attempt(attempt) / "logs" / f"{role}-{index}.log"

    def ready(self, attempt: int, role: str, index: int) -> Path:
        """File by which a process says that it serves, in one attempt."""
        return self.attempt(attempt) / "ready" / f"{role}-{index}"

    def done(self, role: str) -> Path:
        """File by which a finishing role says that it ended well."""
        return self.root / "done" / role

    def events(self, role: str, index: int) -> Path:
        """Events of one process."""
        return self.root / "events" / f"{role}-{index}.jsonl"

    def metrics(self, role: str, index: int) -> Path:
        """Metrics of one process."""
        return self.root / "metrics" / f"{role}-{index}.jsonl"

    def scrape(self, role: str, index: int) -> Path:
        """Where Prometheus finds one process, in the form of its file_sd_configs."""
        return self.root / "prometheus" / f"{role}-{index}.json"
