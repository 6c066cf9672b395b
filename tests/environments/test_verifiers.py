"""A real verifiers environment, with a real tool server, through our rollout code: exact tokens, masks, rewards.

The tokenizer has one token a byte and a few end marks, so every token can be told from the text.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="needs pip install 'prlc[verifiers]'")
pytest.importorskip("transformers")

import httpx
from prlc.runtime.environments.base import DrivingEnvironment, RolloutFailed, UnknownEnvironment, load
from prlc.runtime.orchestrator.dispatcher import Dispatcher
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, Turn
from prlc.runtime.orchestrator.ledger import Ledger
from prlc.runtime.orchestrator.rollout import Sample, play
from prlc.schema.orchestrator import Environment, OrchestratorConfig, Sampling

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(120)]

PACKAGES = str(Path(__file__).parent / "packages")
END = "<|im_end|>"
MARKS = ["<|endoftext|>", "<|im_start|>", END, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
MARKS += ["<think>", "</think>"]
# ChatML, as many models have it; it repeats what an assistant said word for word.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RENDERERS = {
    "template": {"name": "default", "tool_parser": "qwen3"},
    "family": {"name": "qwen3"},
}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    folder = tmp_path_factory.mktemp("model")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Arguments for a tool server that runs already: verifiers needs seconds to start one."""
    port_file = tmp_path_factory.mktemp("shop") / "port"
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "MCP_PORT_FILE": str(port_file), "VF_CONFIG": "{}"}
    server = subprocess.Popen([sys.executable, "-m", "shop_tasks"], env=environment)
    try:
        until = time.monotonic() + 100
        while not port_file.exists() or not port_file.read_text():
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        url = f"http://127.0.0.1:{port_file.read_text()}/mcp"
        while True:
            try:
                httpx.get(
                    url, timeout=5, trust_env=False, headers={"Accept": "text/plain"}
                )  # else: a stream without end
                break
            except httpx.HTTPError:
                assert time.monotonic() < until
                time.sleep(0.1)
        yield {"taskset": {"tools_url": url}}
    finally:
        server.kill()
        server.wait()


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGES)
    monkeypatch.setenv("PYTHONPATH", PACKAGES)  # the tool server is a process of its own


class Text:
    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))


class Says:
    """An engine that says the given turns; the version rises with each turn, expert row i is the byte i, twice."""

    name = "scripted"

    def __init__(self, text: Text, *turns: str | Exception) -> None:
        self.text, self.turns, self.requests, self.stops = text, list(turns), [], set()
        self.aborted: list[str] = []

    async def generate(
        self,
        *,
        request_id: str,
        tokens: list[int],
        max_tokens: int,
        cache_salt: str,
        routed_start: int | None,
        stop_token_ids: tuple[int, ...] = (),
    ) -> Turn:
        self.stops |= set(stop_token_ids)
        self.requests.append((request_id, list(tokens)))
        says = self.turns[len(self.requests) - 1]
        if isinstance(says, Exception):
            raise says
        if says == "forever":
            await asyncio.sleep(3600)
        out = self.text.encode(says)
        rows, start = len(tokens) + len(out) - 1, routed_start or 0
        routed = b"".join(bytes([i % 256] * 2) for i in range(start, rows))
        version = len(self.requests)
        return Turn(tuple(out), (-0.25,) * len(out), (version,) * len(out), routed, rows - start)

    async def abort(self, request_ids: list[str]) -> None:
        self.aborted += request_ids


def config(**changes: Any) -> OrchestratorConfig:
    values: dict[str, Any] = {
        "model": "m",
        "seq_len": 2048,
        "max_steps": 1,
        "batch_size": 4,
        "group_size": 2,
        "advantage": "grpo",
        "max_off_policy_steps": 4,
        "max_inflight_groups": 2,
        "environment": Environment(id="verifiers:shop-tasks"),
        "sampling": Sampling(max_tokens=200, max_turns=4),
        "routed_experts": True,
        "moe_layers": 1,
        "top_k": 2,
        "num_experts": 16,
        "route": "direct",
        "engine_roles": ("engine",),
        "admin_deadline": 10.0,
    }
    return OrchestratorConfig(**{**values, **changes})


def call(item: str, tool: str = "shop_price") -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': {'item': item}})}</tool_call>{END}"


async def entered(model: Path, arguments: dict[str, Any], scene: Callable[[DrivingEnvironment], Awaitable[Any]]) -> Any:
    environment = load("verifiers:shop-tasks", {"renderer": RENDERERS["family"], **arguments}, model)
    assert isinstance(environment, DrivingEnvironment)
    async with environment:
        return await scene(environment)


def one_rollout(model: Path, arguments: dict[str, Any], engine: Says, **changes: Any) -> tuple[Sample, Any]:
    async def scene(environment: Any) -> tuple[Sample, Any]:
        task, sample = environment.task("train", 0), Sample(3)
        await play(sample, task, environment, engine.text, Slot(engine), "v0", config(**changes), "a1-")
        return sample, task.secret["task"].data

    return asyncio.run(entered(model, arguments, scene))


def spoken(sample: Sample, text: Text) -> list[tuple[int, str]]:
    """Runs of equal loss mask, as text."""
    runs: list[tuple[int, list[int]]] = []
    for token, mask in zip(sample.tokens, sample.loss_mask, strict=True):
        if not runs or runs[-1][0] != mask:
            runs.append((mask, []))
        runs[-1][1].append(token)
    return [(mask, text.decode(tokens)) for mask, tokens in runs]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_tool_turns_keep_the_exact_tokens(model: Path, shop: dict[str, Any], renderer: str) -> None:
    text = Text(model)
    item = one_item(model)
    # No tokenizer would write these two spaces after reading the call as JSON and writing it again.
    first = call(item).replace(": {", ":  {")
    engine = Says(text, first, call("nothing"), f"{price(item)}{END}")
    sample, data = one_rollout(model, {"renderer": RENDERERS[renderer], **shop}, engine)
    assert data.item == item
    assert sample.reward == 1.5
    assert sample.turns == 3
    said = spoken(sample, text)
    assert [mask for mask, _ in said] == [0, 1, 0, 1, 0, 1]
    assert [words for mask, words in said if mask] == [first, call("nothing"), f"{price(item)}{END}"]
    opening, result, failure = (words for mask, words in said if not mask)
    assert f"What does {item} cost?" in opening
    assert "You sell things." in opening
    assert "shop_price" in opening
    assert result.startswith("\n<|im_start|>")
    assert price(item) in result
    assert "no such item: nothing" in failure
    for words in (opening, result, failure):
        assert words.endswith("<|im_start|>assistant\n")
    # Each request continues the tokens of the one before, with what the model said untouched.
    asked = [tokens for _, tokens in engine.requests]
    ids = text.encode(first)
    assert asked[1][: len(asked[0]) + len(ids)] == asked[0] + ids
    assert [name for name, _ in engine.requests] == ["a1-3-0", "a1-3-1", "a1-3-2"]
    assert sample.tokens[: len(asked[2])] == asked[2]
    assert sample.routed == b"".join(bytes([i % 256] * 2) for i in range(len(sample.tokens) - 1))
    spans = {version: sample.versions.count(version) for version in set(sample.versions)}
    lengths = [len(text.encode(words)) for words in (first, call("nothing"), f"{price(item)}{END}")]
    assert spans == {-1: sample.loss_mask.count(0), 1: lengths[0], 2: lengths[1], 3: lengths[2]}
    assert text.encode(END)[0] in engine.stops


def test_thoughts_stay_in_the_tokens_and_out_of_the_answer(model: Path, shop: dict[str, Any]) -> None:
    text = Text(model)
    item = one_item(model)
    turns = [
        f"<think>\nI must ask.\n</think>\n\n{call(item)}",
        f"<think>\nIt is {price(item)}.\n</think>\n\n{price(item)}{END}",
    ]
    sample, _ = one_rollout(model, shop, Says(text, *turns))
    assert [words for mask, words in spoken(sample, text) if mask] == turns
    assert sample.reward == 1.5


def price(item: str) -> str:
    return str(10 + int(item.removeprefix("item")))


def one_item(model: Path) -> str:
    environment: Any = load("verifiers:shop-tasks", {"renderer": RENDERERS["family"]}, model)
    return str(environment.task("train", 0).secret["task"].data.item)


@pytest.mark.parametrize("renderer", RENDERERS)
def test_a_turn_cut_off_is_closed_before_the_next(model: Path, shop: dict[str, Any], renderer: str) -> None:
    text = Text(model)
    cut = call(one_item(model)).removesuffix(END)
    sample, _ = one_rollout(model, {"renderer": RENDERERS[renderer], **shop}, Says(text, cut, f"1{END}"))
    (_, _), (_, words), (_, said), (_, last) = spoken(sample, text)
    assert (words, last) == (cut, f"1{END}")
    assert said.startswith(f"{END}\n<|im_start|>")  # said for the model, and not trained


def test_turns_end_at_max_turns_and_at_seq_len(model: Path, shop: dict[str, Any]) -> None:
    text = Text(model)
    item = one_item(model)
    sample, _ = one_rollout(
        model, shop, Says(text, call(item), call(item)), sampling=Sampling(max_tokens=200, max_turns=2)
    )
    assert (sample.turns, sample.reward, sample.truncated) == (2, 0.5, False)
    start = next(words for mask, words in spoken(sample, text) if not mask)
    room = len(text.encode(start)) + len(text.encode(call(item))) + 5
    sample, _ = one_rollout(model, shop, Says(text, call(item)), seq_len=room)
    assert (sample.turns, sample.reward, sample.truncated) == (1, 0.0, True)
    assert len(sample.tokens) == room - 5
    with pytest.raises(RolloutFailed, match="without a turn of the model"):
        one_rollout(model, shop, Says(text), seq_len=10)


def test_a_tool_server_is_started_and_stopped_with_the_environment(model: Path) -> None:
    text = Text(model)
    item = one_item(model)
    sample, _ = one_rollout(model, {}, Says(text, call(item), f"{price(item)}{END}"))
    assert sample.reward == 1.5


PLAIN = {"taskset": {"tools": False}}


@pytest.mark.parametrize(("item", "cause"), [("no-box", "sandbox did not start"), ("no-judge", "judge is away")])
def test_faults_of_an_environment_are_faults_of_the_rollout(model: Path, item: str, cause: str) -> None:
    arguments = {"taskset": {"tools": False, "items": [item]}, "eval": {"items": ["item1"]}}
    with pytest.raises(RolloutFailed, match=cause):
        one_rollout(model, arguments, Says(Text(model), f"1{END}"))


def test_an_engine_lost_is_no_fault_of_the_rollout(model: Path) -> None:
    with pytest.raises(EngineFailure, match="gone"):
        one_rollout(model, PLAIN, Says(Text(model), EngineFailure("gone")))


def test_a_broken_rollout_leaves_its_group_and_no_request(model: Path) -> None:
    """Two of three go on; the third hangs past its deadline, and its request is ended on the engine."""
    text = Text(model)
    finished: list[list[Sample]] = []
    causes: list[str] = []
    ledger = Ledger()

    async def scene(environment: Any) -> Says:
        engine = Says(text, f"5{END}", "forever", f"6{END}")
        dispatcher = Dispatcher(
            config(group_size=3),
            environment,
            text,
            [Slot(engine)],
            ledger,
            finished.append,
            lambda cause, new: pytest.fail(cause),
            causes.append,
        )
        dispatcher.fill(1)
        await asyncio.wait_for(next(iter(dispatcher.groups)).task, 30)  # type: ignore[arg-type]
        return engine

    engine = asyncio.run(entered(model, {**PLAIN, "deadline": 3.0}, scene))
    assert [len(group) for group in finished] == [2]
    assert "not done within 3 s" in causes[0]
    assert ledger.dropped["environment"] == 1
    assert engine.aborted == [engine.requests[1][0]]
    ledger.check()


def test_splits_share_no_task_and_orders_are_whole(model: Path) -> None:
    environment: Any = load("verifiers:shop-tasks", {"renderer": RENDERERS["family"], **PLAIN}, model)
    train = [environment.task("train", index).prompt for index in range(len(environment.splits["train"]) * 2)]
    half = len(train) // 2
    assert sorted(train[:half]) == sorted(train[half:]) == sorted(set(train))
    assert train[:half] != train[half:]
    held = {environment.task("eval", index).prompt for index in range(20)}
    assert held
    assert not held & set(train)
    assert environment.task("train", 3).prompt == environment.task("train", 3).prompt


@pytest.mark.parametrize(
    ("name", "arguments", "cause"),
    [
        ("verifiers:no-such-tasks", {}, "no_such_tasks.*install the package"),
        ("verifiers:shop-tasks", {"colour": 1}, "unknown args colour"),
        ("verifiers:shop-tasks", {"taskset": {"colour": 1}}, "colour"),
        ("verifiers:shop-tasks", {"taskset": {"items": ["item1"]}}, "both are needed"),
        ("verifiers:shop-tasks", {"eval": {"items": ["item1"]}}, "shares 1 tasks"),
        ("verifiers:shop-tasks", {"agent": {"harness": {"id": "bash"}}}, "run what the model writes"),
        ("verifiers:shop-tasks", {"agent": {"model": "other"}}, "leave model to the run"),
        ("verifiers:shop-tasks", {"renderer": {"name": "none"}}, "none"),
    ],
)
def test_what_cannot_be_played_is_refused(model: Path, name: str, arguments: dict[str, Any], cause: str) -> None:
    with pytest.raises(UnknownEnvironment, match=cause):
        load(name, {"renderer": RENDERERS["family"], **arguments}, model)


def test_a_model_is_wanted_and_the_right_version(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownEnvironment, match="needs the model's folder"):
        load("verifiers:shop-tasks", {})
    monkeypatch.setattr("verifiers.__version__", "0.3.9")
    with pytest.raises(UnknownEnvironment, match=r"0.3.9 is installed, 0.4 is needed"):
        load("verifiers:shop-tasks", {}, model)


def test_the_plain_template_refuses_tools_that_it_cannot_read(model: Path, shop: dict[str, Any]) -> None:
    with pytest.raises(RolloutFailed, match="name a renderer"):
        one_rollout(model, {**shop, "renderer": {"name": "default"}}, Says(Text(model), f"1{END}"))


def test_a_template_that_rewrites_history_is_refused(model: Path) -> None:
    from prlc.runtime.environments.verifiers_chat import Chat

    chat = Chat(model, RENDERERS["template"])
    text = Text(model)
    user = {"role": "user", "content": "a"}
    prompt = chat.opening([user], None)
    said = text.encode(f"b{END}")
    turns = [user, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert text.decode(chat.extension(prompt, said, turns, 1, None)) == "\n<|im_start|>user\nc" + (
        f"{END}\n<|im_start|>assistant\n"
    )
    # Cut off: the end token is said for the model, and is not trained.
    assert text.decode(chat.extension(prompt, said[:-1], turns, 1, None)).startswith(f"{END}\n<|im_start|>user")
    with pytest.raises(RolloutFailed, match="rewrote its history"):
        chat.extension(prompt, said, turns, 2, None)
    tokenizer: Any = chat.renderer._tokenizer  # type: ignore[attr-defined]
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content if m.role == 'user' or not loop.last else 'thought ' + m.content }}<|im_end|>\n{% endfor %}"
    )
    with pytest.raises(RolloutFailed, match="rewrites earlier turns"):
        chat.extension(prompt, said, turns, 1, None)


def test_planning_and_the_builtin_environments_do_not_import_it() -> None:
    code = (
        "import sys, prlc.compiler.cli, prlc.runtime.environments.base as base\n"
        "base.load('lookup', {})\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('verifiers', 'renderers', 'mcp')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
