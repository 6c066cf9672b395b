"""Environments: disjoint splits, honest rewards, demonstrations that teach what they say."""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from prlc.runtime.environments.base import UnknownEnvironment, load
from prlc.runtime.environments.demonstrations import demonstrations
from prlc.runtime.environments.words import VOCABULARY

NAMES = ["lookup", "arithmetic", "copy"]


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_no_question(name: str) -> None:
    environment = load(name, {})
    train = {environment.task("train", index).prompt for index in range(300)}
    held = {environment.task("eval", index).prompt for index in range(300)}
    assert train
    assert held
    assert not train & held
    assert environment.task("train", 5) == environment.task("train", 5)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_solution_is_rewarded(name: str) -> None:
    environment: Any = load(name, {})
    rng = random.Random(0)
    for index in range(50):
        task = environment.task("train", index)
        right = environment.solution(task)
        assert environment.reward(task, right) == 1.0
        assert environment.reward(task, right[:-1]) == 0.0
        assert environment.reward(task, [*right, right[-1]]) == 0.0
        wrong = environment.mistake(task, rng)
        assert environment.reward(task, wrong) == float(wrong == right)


def test_the_answer_is_hidden_until_the_call() -> None:
    environment = load("lookup", {})
    values = set()
    for index in range(2000):
        task = environment.task("train", index)
        if task.prompt.split()[3] == "k3":
            values.add(task.secret["table"]["k3"])
            reply = environment.respond(task, ["<call> k3 <eos>"])
            assert not reply.done
            assert reply.text.split()[1] == task.secret["table"]["k3"]
            assert environment.reward(task, [f"<answer> {task.secret['table']['k3']} <eos>"]) == 0.0
            assert environment.respond(task, ["<call> k99 <eos>"]).done
    assert len(values) == 10


def test_every_word_is_in_the_vocabulary() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 64
    for name in NAMES:
        for record in demonstrations(name, 50, 0.5, 1):
            assert len(record["tokens"]) == len(record["loss_mask"]) <= 64


def test_noise_decides_the_share_of_right_answers() -> None:
    def right(noise: float) -> float:
        made = list(demonstrations("lookup", 400, noise, 0))
        # The call names the first key of the prompt, and the answer repeats the result.
        return sum(r["tokens"][8] == r["tokens"][3] and r["tokens"][11] == r["tokens"][14] for r in made) / 400

    assert right(0.0) == 1.0
    assert right(1.0) < 0.05
    assert 0.15 < right(0.75) < 0.35


def test_unknown_environments_and_arguments_are_refused() -> None:
    with pytest.raises(UnknownEnvironment, match="known: arithmetic"):
        load("nothing", {})
    with pytest.raises(UnknownEnvironment, match="colour"):
        load("lookup", {"colour": 1})
    with pytest.raises(UnknownEnvironment, match=r"2 \.\. 16"):
        load("lookup", {"keys": 99})


def test_an_environment_of_verifiers_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("prlc.runtime.environments.verifiers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(UnknownEnvironment, match=r"not installed \(verifiers.*pip install 'prlc\[verifiers\]'"):
        load("verifiers:shop-tasks", {}, Path("model"))


@pytest.mark.runtime
def test_the_tiny_model_depends_on_its_seed_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from prlc.runtime.ops.tiny_model import write_model

    def digest(name: str, seed: int) -> dict[str, str]:
        write_model(tmp_path / name, seed)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / name).iterdir()}

    first = digest("a", 0)
    assert first == digest("b", 0)
    assert first["model.safetensors"] != digest("c", 1)["model.safetensors"]
