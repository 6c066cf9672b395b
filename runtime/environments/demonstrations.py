"""Demonstrations for a warm start: JSON lines of {"tokens": [...], "loss_mask": [...]}.

    python -m prlc.runtime.environments.demonstrations --env lookup --n 2000 --noise 0.8 --out data.jsonl

`--noise P` is the share of demonstrations whose key and answer are random. They teach the form of a turn but
not the skill, so that what reinforcement learning adds afterwards can be seen. Only train tasks are used.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prlc.runtime.environments.base import load
from prlc.runtime.environments.words import VOCABULARY
from prlc.runtime.ops.files import write_atomic

_IDS = {word: index for index, word in enumerate(VOCABULARY)}


def demonstrations(name: str, count: int, noise: float, seed: int) -> Iterator[dict[str, Any]]:
    """Yield `count` demonstrations in the tiny tokenizer's tokens. Raises UnknownEnvironment."""
    environment: Any = load(name, {})
    rng = random.Random(f"demonstrations {seed}")
    for index in range(count):
        # Indices from 2^32 up: a run counts its tasks from 0.
        task = environment.task("train", 2**32 + index)
        turns = environment.mistake(task, rng) if rng.random() < noise else environment.solution(task)
        tokens = [_IDS[word] for word in task.prompt.split()]
        mask = [0] * len(tokens)
        for number, turn in enumerate(turns):
            words = turn.split()
            tokens += [_IDS[word] for word in words]
            mask += [1] * len(words)
            reply = environment.respond(task, turns[: number + 1])
            if reply.done:
                break
            said = reply.text.split()
            tokens += [_IDS[word] for word in said]
            mask += [0] * len(said)
        yield {"tokens": tokens, "loss_mask": mask}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write demonstrations for a warm start.")
    parser.add_argument("--env", required=True)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--noise", type=float, default=0.0, help="share with random key and answer, 0 .. 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if not 0 <= arguments.noise <= 1:
        parser.error("--noise must be 0 .. 1")
    made = demonstrations(arguments.env, arguments.n, arguments.noise, arguments.seed)
    write_atomic(arguments.out, "".join(json.dumps(record) + "\n" for record in made))
    print(f"wrote {arguments.n} demonstrations to {arguments.out}")


if __name__ == "__main__":
    main()
