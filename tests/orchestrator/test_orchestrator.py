"""The orchestrator against scripted engines: the books, staleness, cancellation, resume, rows."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from prlc.runtime.environments.base import load
from prlc.runtime.environments.words import VOCABULARY
from prlc.runtime.ops.files import complete_numbers, write_atomic
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.orchestrator import state
from prlc.runtime.orchestrator.advantages import advantages
from prlc.runtime.orchestrator.batcher import Batcher
from prlc.runtime.orchestrator.dispatcher import Dispatcher
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, Turn
from prlc.runtime.orchestrator.ledger import Ledger, LedgerError
from prlc.runtime.orchestrator.loop import Loop
from prlc.runtime.orchestrator.rollout import Sample, play
from prlc.runtime.orchestrator.updates import update_engines
from prlc.schema.orchestrator import Environment, Evaluation, OrchestratorConfig, Sampling

IDS = {word: index for index, word in enumerate(VOCABULARY)}


class Words:
    def encode(self, text: str) -> list[int]:
        return [IDS[word] for word in text.split()]

    def decode(self, tokens: list[int]) -> str:
        return " ".join(VOCABULARY[token] for token in tokens)


class Scripted:
    """Solves with probability `skill`, fails with probability `fault`; row i is the byte i, twice."""

    def __init__(self, name: str, skill: float = 0.5, fault: float = 0.0, hang: bool = False) -> None:
        self.name, self.skill, self.fault, self.hang = name, skill, fault, hang
        self.rng = random.Random(name)
        self.version, self.calls, self.aborted, self.starts = 0, [], [], []

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
        version = self.version
        await asyncio.sleep(3600 if self.hang else 0)
        if self.rng.random() < self.fault:
            raise EngineFailure("scripted fault")
        words = [VOCABULARY[token] for token in tokens]
        if "<result>" in words:
            right = words[words.index("<result>") + 1]
            said = ["<answer>", right if self.rng.random() < self.skill else "x"]
            out = [IDS[said[0]], IDS.get(said[1], IDS["a"]), IDS["<eos>"]]
        else:
            out = [IDS["<call>"], tokens[3], IDS["<eos>"]]
        total = len(tokens) + len(out) - 1
        self.starts.append(routed_start)
        rows = b"".join(bytes([i % 256] * 2) for i in range(routed_start or 0, total))
        return Turn(tuple(out), (-0.5,) * 3, (version,) * 3, rows, total - (routed_start or 0))

    async def abort(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    async def pause(self) -> None:
        self.calls.append("pause")
        if self.rng.random() < self.fault:
            raise EngineFailure("scripted fault")

    async def load(self, version: int, folder: Path) -> None:
        self.calls.append(f"load {version}")
        self.version = version

    async def resume(self) -> None:
        self.calls.append("resume")


class Notes:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.steps: list[tuple[int, dict[str, Any]]] = []

    def emit(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    def log(self, step: int, **values: Any) -> None:
        assert values["generated"] == values["trained"] + sum(values["dropped"].values()) + values["waiting"]
        self.steps.append((step, values))


def config(**changes: Any) -> OrchestratorConfig:
    values: dict[str, Any] = {
        "model": "m",
        "seq_len": 64,
        "max_steps": 6,
        "batch_size": 8,
        "group_size": 4,
        "advantage": "grpo",
        "max_off_policy_steps": 2,
        "max_inflight_groups": 4,
        "environment": Environment(id="lookup"),
        "sampling": Sampling(max_tokens=4, max_turns=2),
        "evaluation": Evaluation(rollouts=4),
        "routed_experts": True,
        "moe_layers": 1,
        "top_k": 2,
        "num_experts": 16,
        "route": "direct",
        "engine_roles": ("engine",),
        "admin_deadline": 5.0,
        "policy_deadline": 20.0,
    }
    return OrchestratorConfig(**{**values, **changes})


def publish(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "COMPLETE", b"")


def loop_of(paths: RunPaths, slots: list[Slot], shipped: list[Any], notes: Notes, **changes: Any) -> Loop:
    def ship(step: int, samples: list[Sample]) -> None:
        publish(paths.batch(step))
        shipped.append((step, samples))
        publish(paths.policy(step))  # a trainer that takes no time

    return Loop(config(**changes), paths, paths.root, load("lookup", {}), Words(), slots, ship, notes, poll=0.001)


def test_books_balance_through_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prlc.runtime.orchestrator.loop.RETRY_AFTER", 0.0)
    slots = [Slot(Scripted("a", fault=0.1)), Slot(Scripted("b", fault=0.1))]
    shipped: list[Any] = []
    notes = Notes()
    loop = loop_of(RunPaths(tmp_path), slots, shipped, notes, evaluation=Evaluation(rollouts=0))
    asyncio.run(asyncio.wait_for(loop.run(), 60))
    assert [step for step, _ in shipped] == [1, 2, 3, 4, 5, 6] == [step for step, _ in notes.steps]
    assert loop.ledger.trained == 48
    assert loop.ledger.waiting == 0
    assert loop.ledger.dropped["failed"] > 0
    for step, samples in shipped:
        assert len(samples) == 8
        assert all((step - 1) - sample.oldest <= 2 for sample in samples)
    trained = [sample.rollout for _, samples in shipped for sample in samples]
    assert len(set(trained)) == len(trained)


def test_resume_counts_once_and_marks_lost(tmp_path: Path) -> None:
    paths, shipped, notes = RunPaths(tmp_path), [], Notes()
    asyncio.run(asyncio.wait_for(loop_of(paths, [Slot(Scripted("a"))], shipped, notes, max_steps=3).run(), 60))
    before = state.newest(paths)
    assert before is not None
    assert before.step == 3
    # A state whose batch never appeared is not used.
    state.save(paths, state.State(4, 0, before.counters))
    again = loop_of(paths, [Slot(Scripted("b"))], shipped, notes, max_steps=5)
    assert again.step == 3
    assert again.dispatcher.cursor == before.cursor
    assert again.ledger.dropped["lost_on_restart"] == before.counters["waiting"]
    asyncio.run(asyncio.wait_for(again.run(), 60))
    assert [step for step, _ in shipped] == [1, 2, 3, 4, 5]
    assert again.ledger.trained == 40
    assert "load 3" in again.slots[0].engine.calls  # type: ignore[attr-defined]
    assert notes.events[-1][0] == "orchestrator_done"
    assert any(name == "evaluation" for name, _ in notes.events)


def test_resume_after_batches_were_removed(tmp_path: Path) -> None:
    paths, shipped, notes = RunPaths(tmp_path), [], Notes()
    publish(paths.checkpoint(5))  # covers all that this life ships
    asyncio.run(asyncio.wait_for(loop_of(paths, [Slot(Scripted("a"))], shipped, notes, max_steps=4).run(), 60))
    assert list(complete_numbers(paths.batches)) == [4]  # the newest names the state
    before = state.newest(paths)
    assert before is not None
    assert before.step == 4
    again = loop_of(paths, [Slot(Scripted("b"))], shipped, notes, max_steps=8)
    assert (again.step, again.ledger.trained) == (4, 32)
    asyncio.run(asyncio.wait_for(again.run(), 60))
    assert [step for step, _ in shipped] == [1, 2, 3, 4, 5, 6, 7, 8]  # Notes checks the sums at each
    assert again.ledger.trained == 64
    assert list(complete_numbers(paths.batches)) == [6, 7, 8]


def group(ledger: Ledger, version: int, rewards: list[float]) -> list[Sample]:
    return [Sample(ledger.start(), tokens=[1], versions=[version], reward=reward) for reward in rewards]


def test_queue_time_counts_as_lag() -> None:
    ledger = Ledger()
    batcher = Batcher(config(), ledger)
    batcher.add(group(ledger, 0, [0, 1, 0, 1]))
    assert batcher.form(3) is None
    assert ledger.dropped["stale_queue"] == 0
    batcher.add(group(ledger, 1, [0, 1, 0, 1]))
    assert batcher.form(4) is None
    assert ledger.dropped["stale_queue"] == 4
    batcher.add(group(ledger, 3, [1, 1, 1, 1]))
    assert ledger.dropped["zero_advantage"] == 4
    ledger.check()


def test_a_policy_that_always_succeeds_still_ships(tmp_path: Path) -> None:
    shipped: list[Any] = []
    notes = Notes()
    loop = loop_of(RunPaths(tmp_path), [Slot(Scripted("a", skill=1.0))], shipped, notes)
    asyncio.run(asyncio.wait_for(loop.run(), 60))
    assert len(shipped) == 6
    assert 0 < loop.ledger.dropped["zero_advantage"] <= 6 * 8  # MOST_EQUAL batches a step
    assert {sample.advantage for _, samples in shipped for sample in samples} == {0.0}
    assert all(values["reward"] == 1.0 for _, values in notes.steps)


def test_reward_counts_what_was_dropped() -> None:
    ledger = Ledger()
    batcher = Batcher(config(), ledger)
    batcher.add(group(ledger, 0, [1, 1, 1, 1]))
    batcher.add(group(ledger, 0, [0, 1, 0, 1]))
    assert len(batcher.groups) == 1
    assert batcher.reward == 0.75


def test_stale_groups_in_flight_are_aborted() -> None:
    async def scene() -> tuple[Ledger, Scripted, int, int]:
        engine, ledger = Scripted("a", hang=True), Ledger()
        dispatcher = Dispatcher(
            config(),
            load("lookup", {}),
            Words(),
            [Slot(engine)],
            ledger,
            lambda _: None,
            lambda _: None,
            lambda _: None,
        )
        dispatcher.fill(2)
        await asyncio.sleep(0.01)
        return ledger, engine, await dispatcher.cancel_stale(3), await dispatcher.cancel_stale(4)

    ledger, engine, early, late = asyncio.run(scene())
    assert (early, late) == (0, 2)
    assert ledger.dropped["stale_inflight"] == 8
    assert ledger.waiting == 0
    assert "a1-0-0" in engine.aborted
    ledger.check()


def test_rows_join_across_turns() -> None:
    engine = Scripted("a", skill=1.0)
    environment = load("lookup", {})
    sample = asyncio.run(
        play(Sample(0), environment.task("train", 0), environment, Words(), Slot(engine), "v0", config())
    )
    assert sample.reward == 1.0
    assert sample.routed_rows == len(sample.tokens) - 1
    assert sample.routed == b"".join(bytes([i, i]) for i in range(len(sample.tokens) - 1))
    assert engine.starts[0] == 0
    assert engine.starts[1] > 0
    assert [v >= 0 for v in sample.versions] == [bool(m) for m in sample.loss_mask]


def test_missing_rows_are_refused() -> None:
    class Short(Scripted):
        async def generate(self, **asked: Any) -> Turn:
            turn = await super().generate(**asked)
            return Turn(turn.tokens, turn.logprobs, turn.versions, turn.routed[:-2], turn.routed_rows - 1)

    environment = load("lookup", {})
    with pytest.raises(EngineFailure, match="expert rows"):
        asyncio.run(
            play(
                Sample(0),
                environment.task("train", 0),
                environment,
                Words(),
                Slot(Short("a")),
                "v0",
                config(),
            )
        )


def test_advantages_by_hand() -> None:
    assert advantages([1, 0, 0, 1], "grpo") == [1, -1, -1, 1]
    assert advantages([1, 0, 0, 0], "mean") == [0.75, -0.25, -0.25, -0.25]
    assert advantages([1, 1], "grpo") == [0, 0]


def test_a_failing_engine_gets_no_traffic_until_it_loads() -> None:
    bad, good, said = Slot(Scripted("bad", fault=1.0)), Slot(Scripted("good")), []
    asyncio.run(update_engines([bad, good], 1, Path("x"), 1.0, said.append))
    assert not bad.healthy
    assert good.healthy
    assert good.version == 1
    assert "pause" in said[0]
    bad.engine.fault = 0.0  # type: ignore[attr-defined]
    asyncio.run(update_engines([bad], 1, Path("x"), 1.0, said.append))
    assert bad.healthy
    assert bad.version == 1


def test_the_ledger_refuses_a_second_end() -> None:
    ledger = Ledger()
    rollout = ledger.start()
    ledger.drop(rollout, "failed")
    with pytest.raises(LedgerError):
        ledger.drop(rollout, "failed")
    ledger.generated += 1
    with pytest.raises(LedgerError):
        ledger.check()


def test_http_engine_reads_an_answer_and_refuses_a_bad_one() -> None:
    httpx = pytest.importorskip("httpx")
    numpy = pytest.importorskip("numpy")
    import base64
    import io
    import json

    from prlc.runtime.orchestrator.http_engine import HttpEngine

    seen: list[tuple[str, Any]] = []
    served = ["2"]
    rows = numpy.zeros((3, 2, 2), numpy.uint8)
    rows[:, 1] = 7  # layer 0 is dense

    def serve(request: Any) -> Any:
        seen.append((request.url.raw_path.decode(), json.loads(request.content or "null")))
        if request.url.path == "/weight_info":
            return httpx.Response(200, json={"weight_version": served[0]})
        if request.url.path != "/inference/v1/generate":
            return httpx.Response(200, json={})
        buffer = io.BytesIO()
        numpy.save(buffer, rows)
        choice = {
            "token_ids": [5, 6],
            "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -0.2}]},
            "routed_experts": base64.b64encode(buffer.getvalue()).decode(),
            "weight_versions": [
                {"version": "1", "start": 0, "end": 1},
                {"version": "2", "start": 1, "end": 2},
            ],
        }
        return httpx.Response(200, json={"choices": [choice]})

    async def scene() -> Turn:
        async with httpx.AsyncClient(transport=httpx.MockTransport(serve)) as client:
            engine = HttpEngine("e", "http://engine", config(), client)
            await engine.pause()
            await engine.load(2, Path("policy"))
            turn = await engine.generate(
                request_id="r0-0", tokens=[1, 2], max_tokens=2, cache_salt="v1", routed_start=0
            )
            rows[0, 0] = 1  # a dense layer with experts: not what the configuration says
            with pytest.raises(EngineFailure, match="cannot be used"):
                await engine.generate(request_id="r0-1", tokens=[1, 2], max_tokens=2, cache_salt="v1", routed_start=0)
            served[0] = "1"  # an engine that says it took the update and did not
            with pytest.raises(EngineFailure, match="serves version '1' after an update to 2"):
                await engine.load(2, Path("policy"))
            return turn

    turn = asyncio.run(scene())
    assert turn.versions == (1, 2)
    assert turn.routed == bytes([7] * 6)
    assert turn.routed_rows == 3
    assert [path for path, _ in seen][:5] == [
        "/pause?mode=keep&clear_cache=false",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/weight_info",
    ]
    assert seen[5][1]["cache_salt"] == "v1"


def test_rows_of_dense_layers_between_are_cut() -> None:
    httpx, numpy = pytest.importorskip("httpx"), pytest.importorskip("numpy")
    import base64
    import io

    from prlc.runtime.orchestrator.http_engine import HttpEngine

    def text(array: Any) -> str:
        buffer = io.BytesIO()
        numpy.save(buffer, array)
        return base64.b64encode(buffer.getvalue()).decode()

    rows = numpy.arange(2 * 4 * 2, dtype=numpy.uint8).reshape(2, 4, 2)
    rows[:, [0, 2]] = 0
    engine = HttpEngine("e", "http://engine", config(moe_layers=2, moe_layer_ids=(1, 3)), httpx.AsyncClient())
    assert engine._rows(text(rows)).tolist() == [[[2, 3], [6, 7]], [[10, 11], [14, 15]]]
    for bad in (rows[:, :3], numpy.roll(rows, 1, axis=1)):  # a layer too few; experts where a layer is dense
        with pytest.raises(ValueError, match="expert rows"):
            engine._rows(text(bad))
    last = HttpEngine("e", "http://engine", config(moe_layers=2), httpx.AsyncClient())
    with pytest.raises(ValueError, match="expert rows"):
        last._rows(text(rows))


def test_a_batch_folder_holds_what_the_samples_hold() -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("safetensors")
    from prlc.runtime.orchestrator.shipping import as_batch

    environment = load("lookup", {})
    sample = asyncio.run(
        play(
            Sample(7),
            environment.task("train", 0),
            environment,
            Words(),
            Slot(Scripted("a", 1.0)),
            "v0",
            config(),
        )
    )
    sample.advantage = 0.5
    batch = as_batch(1, [sample, sample], config())
    batch.check()
    length = len(sample.tokens)
    assert batch.sample_offsets.tolist() == [0, length, 2 * length]
    assert batch.routed_valid.tolist() == ([1] * (length - 1) + [0]) * 2
    assert batch.routed_experts[length + 1].tolist() == [[1, 1]]
    assert batch.advantages.tolist() == [0.5 * mask for mask in sample.loss_mask] * 2
    assert batch.tokens.dtype == numpy.int32
    assert batch.meta["rollouts"] == [7, 7]
