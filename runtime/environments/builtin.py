"""The built-in environments: a lookup with a tool, and two that take one turn.

Train and eval tasks are disjoint: a question belongs to eval when its hash is 0 modulo 5, else to train.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from prlc.runtime.environments.base import Reply, Split, Task
from prlc.runtime.environments.words import (
    ANSWER,
    ASSISTANT,
    BOS,
    CALL,
    DIGITS,
    EOS,
    KEYS,
    LETTERS,
    RESULT,
    USER,
)


def split_of(question: str) -> Split:
    """The split that a question belongs to, by its hash; the same in every process."""
    return "eval" if zlib.crc32(question.encode()) % 5 == 0 else "train"


def spoken(turn: str) -> list[str]:
    """Words of a model turn up to its end mark."""
    words = turn.split()
    return words[: words.index(EOS)] if EOS in words else words


@dataclass(frozen=True)
class Lookup:
    """The prompt names two keys; the model must call the tool with the first and answer the value.

    The value is hidden in the environment's table, so no policy can know it without the call. Rewarded is the
    right final answer after a call for the right key, and nothing else.
    """

    seed: int = 0
    keys: int = 16
    values: int = 10
    name: str = "lookup"

    def __post_init__(self) -> None:
        if not 2 <= self.keys <= len(KEYS) or not 2 <= self.values <= len(DIGITS):
            raise TypeError(f"keys must be 2 .. {len(KEYS)} and values 2 .. {len(DIGITS)}")

    def task(self, split: Split, index: int) -> Task:
        """Task `index` of a split."""
        rng = random.Random(f"lookup {self.seed} {split} {index}")
        while True:
            key, other = rng.sample(KEYS[: self.keys], 2)
            table = {name: rng.choice(DIGITS[: self.values]) for name in KEYS[: self.keys]}
            if split_of(f"{key} {other}") == split:
                prompt = f"{BOS} {USER} get {key} - {other} {ASSISTANT}"
                return Task(index, split, prompt, {"key": key, "table": table})

    def respond(self, task: Task, turns: list[str]) -> Reply:
        """A well-formed call of a known key is answered with its value; anything else ends the rollout."""
        words = spoken(turns[-1])
        if len(turns) == 1 and len(words) == 2 and words[0] == CALL and words[1] in task.secret["table"]:
            return Reply(f"{RESULT} {task.secret['table'][words[1]]} {ASSISTANT}", False)
        return Reply("", True)

    def reward(self, task: Task, turns: list[str]) -> float:
        """1 for the right call and the right answer, else 0."""
        key = task.secret["key"]
        right = [[CALL, key], [ANSWER, task.secret["table"][key]]]
        return float([spoken(turn) for turn in turns] == right)

    def solution(self, task: Task) -> list[str]:
        """The right turns, for demonstrations."""
        key = task.secret["key"]
        return [f"{CALL} {key} {EOS}", f"{ANSWER} {task.secret['table'][key]} {EOS}"]

    def mistake(self, task: Task, rng: random.Random) -> list[str]:
        """Turns of the right form with a random key and a random answer."""
        return [
            f"{CALL} {rng.choice(KEYS[: self.keys])} {EOS}",
            f"{ANSWER} {rng.choice(DIGITS[: self.values])} {EOS}",
        ]


@dataclass(frozen=True)
class _OneTurn:
    seed: int = 0

    def respond(self, task: Task, turns: list[str]) -> Reply:
        """One turn ends the rollout."""
        return Reply("", True)

    def reward(self, task: Task, turns: list[str]) -> float:
        """1 for exactly the right words, else 0."""
        return float(len(turns) == 1 and spoken(turns[0]) == task.secret["answer"])

    def solution(self, task: Task) -> list[str]:
        """The right turn, for demonstrations."""
        return [" ".join([*task.secret["answer"], EOS])]


@dataclass(frozen=True)
class Arithmetic(_OneTurn):
    """The sum of two digits modulo ten."""

    name: str = "arithmetic"

    def task(self, split: Split, index: int) -> Task:
        """Task `index` of a split."""
        rng = random.Random(f"arithmetic {self.seed} {split} {index}")
        while True:
            left, right = rng.choice(DIGITS), rng.choice(DIGITS)
            if split_of(f"{left} + {right}") == split:
                prompt = f"{BOS} {USER} sum {left} + {right} {ASSISTANT}"
                return Task(index, split, prompt, {"answer": [ANSWER, str((int(left) + int(right)) % 10)]})

    def mistake(self, task: Task, rng: random.Random) -> list[str]:
        """The right form with a random digit."""
        return [f"{ANSWER} {rng.choice(DIGITS)} {EOS}"]


@dataclass(frozen=True)
class Copy(_OneTurn):
    """Repeat a few letters."""

    length: int = 3
    name: str = "copy"

    def __post_init__(self) -> None:
        if not 1 <= self.length <= 16:
            raise TypeError("length must be 1 .. 16")

    def task(self, split: Split, index: int) -> Task:
        """Task `index` of a split."""
        rng = random.Random(f"copy {self.seed} {split} {index}")
        while True:
            letters = [rng.choice(LETTERS) for _ in range(self.length)]
            # A single letter has few questions; both splits still have some, as 21 letters hash differently.
            if split_of(" ".join(letters)) == split:
                prompt = f"{BOS} {USER} copy {' '.join(letters)} {ASSISTANT}"
                return Task(index, split, prompt, {"answer": [ANSWER, *letters]})

    def mistake(self, task: Task, rng: random.Random) -> list[str]:
        """The right form with random letters."""
        return [" ".join([ANSWER, *(rng.choice(LETTERS) for _ in range(self.length)), EOS])]
