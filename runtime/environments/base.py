"""What an environment is: tasks from a seed, turns, a reward.

An Environment speaks in words; the orchestrator turns its words into tokens and never re-tokenises what the
model wrote: the model's tokens stay as they were sampled, and only their decoded text is shown here. A
DrivingEnvironment has a loop of its own (tools, sandboxes, a chat template) and asks a Policy for each turn.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

Split = Literal["train", "eval"]


class UnknownEnvironment(ValueError):
    """No such environment, or its arguments are wrong."""


class RolloutFailed(RuntimeError):
    """One rollout's environment broke down: that rollout is dropped and counted, no engine is to blame."""


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


class Policy(Protocol):
    """One rollout's way to its engine: exact tokens in, exact tokens out."""

    max_turns: int

    @property
    def tokens(self) -> list[int]:
        """What was said so far, by both sides; not to be changed."""
        ...

    async def turn(self, said: list[int], stop_token_ids: tuple[int, ...] = ()) -> list[int]:
        """Append `said`, which no policy wrote, and answer the model's next turn.

        Raises NoRoom, without appending, where seq_len leaves no room; EngineFailure.
        """
        ...


class NoRoom(RuntimeError):
    """The next words do not fit into seq_len."""


@runtime_checkable
class DrivingEnvironment(Protocol):
    """An environment that drives its rollouts itself; it is entered once, in the loop that plays."""

    name: str

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *error: object) -> None: ...

    def task(self, split: Split, index: int) -> Task:
        """As in Environment."""
        ...

    async def play(self, task: Task, policy: Policy) -> float:
        """One rollout; answers its reward. Raises RolloutFailed."""
        ...


AnyEnvironment = Environment | DrivingEnvironment

BUILTIN = {"lookup": "Lookup", "arithmetic": "Arithmetic", "copy": "Copy"}
VERIFIERS = "verifiers:"


def load(name: str, arguments: dict[str, Any], model: Path | None = None) -> AnyEnvironment:
    """An environment by name: a built-in one, or `verifiers:<taskset>` with the chat template of `model`.

    Raises UnknownEnvironment for an unknown name, wrong arguments or a package that is not installed.
    """
    if name.startswith(VERIFIERS):
        try:
            from prlc.runtime.environments.verifiers_adapter import VerifiersEnvironment
        except ModuleNotFoundError as error:
            raise UnknownEnvironment(
                f"environment {name!r} needs a package that is not installed ({error.name}): "
                "pip install 'prlc[verifiers]'"
            ) from None
        if model is None:
            raise UnknownEnvironment(f"environment {name!r} needs the model's folder, for its chat template")
        return VerifiersEnvironment(name.removeprefix(VERIFIERS), arguments, model)
    if name not in BUILTIN:
        raise UnknownEnvironment(
            f"unknown environment {name!r}; known: {', '.join(sorted(BUILTIN))}, {VERIFIERS}<taskset>"
        )
    kind = getattr(importlib.import_module("prlc.runtime.environments.builtin"), BUILTIN[name])
    try:
        environment: Environment = kind(**arguments)
    except TypeError as error:
        raise UnknownEnvironment(f"environment {name!r}: {error}") from None
    return environment
