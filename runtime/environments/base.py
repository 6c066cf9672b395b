"""What an environment is: tasks from a seed, turns, a reward.

Its shape follows verifiers (dataset, env_response, rubric). An environment speaks in words; the orchestrator
turns its words into tokens and never re-tokenises what the model wrote: the model's tokens stay as they were
sampled, and only their decoded text is shown here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Split = Literal["train", "eval"]


class UnknownEnvironment(ValueError):
    """No such environment, or its arguments are wrong."""


@dataclass(frozen=True)
class Task:
    """One task. `secret` is what the environment alone knows: tables and right answers, never a prompt."""

    index: int
    split: Split
    prompt: str
    secret: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What the environment says after a model turn; `done` ends the rollout and then `text` is not sent."""

    text: str
    done: bool


class Environment(Protocol):
    """Tasks, turns and rewards. Pure: the same task and the same turns give the same replies and reward."""

    name: str

    def task(self, split: Split, index: int) -> Task:
        """Task `index` of a split; train and eval tasks never share a question."""
        ...

    def respond(self, task: Task, turns: list[str]) -> Reply:
        """The answer to the last of the model's turns."""
        ...

    def reward(self, task: Task, turns: list[str]) -> float:
        """Reward of the whole rollout, judged on what the model wrote alone."""
        ...


def load(name: str, arguments: dict[str, Any]) -> Environment:
    """An environment by name. Raises UnknownEnvironment for an unknown name or wrong arguments.

    Only the built-in names are served. Environments of the verifiers package drive an OpenAI client of their
    own, which hides tokens and expert rows, so they are refused here with a message rather than half served.
    """
    builtin = {"lookup": "Lookup", "arithmetic": "Arithmetic", "copy": "Copy"}
    if name not in builtin:
        raise UnknownEnvironment(f"unknown environment {name!r}; known: {', '.join(sorted(builtin))}")
    kind = getattr(importlib.import_module("prlc.runtime.environments.builtin"), builtin[name])
    try:
        return kind(**arguments)
    except TypeError as error:
        raise UnknownEnvironment(f"environment {name!r}: {error}") from None
