"""The real vLLM server through the orchestrator's client: numbers, expert rows, updates, aborts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prlc.runtime.orchestrator.engines import EngineFailure, Turn

from tests.inference.conftest import LAYERS, TOP_K, Endless, Reference, Served

pytestmark = pytest.mark.runtime

EXACT = 1e-5  # mean |difference of logprobs|, float32 against float32
PROMPT = [3 + 7 * at % 23 for at in range(40)]


async def ask(engine: Endless, name: str, count: int = 48, start: int | None = 0, salt: str | None = None) -> Turn:
    """`name` is the request's and, unless given, its cache salt: no two tests share KV."""
    return await engine.generate(
        request_id=name, tokens=PROMPT, max_tokens=count, cache_salt=salt or name, routed_start=start
    )


async def update(engine: Endless, version: int, folder: Path) -> None:
    await engine.pause()
    await engine.load(version, folder)
    await engine.resume()


def check(turn: Turn, reference: Reference, first: int = 0) -> None:
    """Logprobs and expert rows (from position `first`) are the reference's."""
    logprobs, experts = reference([*PROMPT, *turn.tokens], len(PROMPT))
    assert np.abs(np.array(turn.logprobs) - logprobs).mean() <= EXACT
    rows = np.frombuffer(turn.routed, np.uint8).reshape(-1, LAYERS, TOP_K)
    assert len(rows) == turn.routed_rows == len(PROMPT) + len(turn.tokens) - 1 - first
    assert np.array_equal(np.sort(rows, -1), experts[first:-1])


def distance(turn: Turn, reference: Reference) -> float:
    logprobs, _ = reference([*PROMPT, *turn.tokens], len(PROMPT))
    return float(np.abs(np.array(turn.logprobs) - logprobs).mean())


def test_numbers_and_updates_are_exact(served: Served, references: tuple[Reference, Reference]) -> None:
    async def body(engine: Endless) -> None:
        for version, folder, reference in (
            (0, served.base, references[0]),  # a model folder without COMPLETE: only the base may lack it
            (1, served.other, references[1]),
            (2, served.base, references[0]),
            (3, served.other, references[1]),
        ):
            await update(engine, version, folder)
            turn = await ask(engine, f"exact-{version}")
            assert turn.versions == (version,) * 48
            check(turn, reference)
            assert distance(turn, references[reference is references[0]]) > 0.01

    served.run(body)


def test_rows_from_a_position_and_cached_prefix(served: Served, references: Any) -> None:
    async def body(engine: Endless) -> list[int]:
        await update(engine, 1, served.base)
        cached = []
        # A block of the CPU's KV cache is 128 tokens, and a prompt's last token is never cached.
        long = PROMPT * 8
        for name, salt in (("first", "v1"), ("again", "v1"), ("else", "v2")):
            await engine.generate(request_id=name, tokens=long, max_tokens=2, cache_salt=salt, routed_start=None)
            cached.append((engine.last["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0)
        turn = await ask(engine, "late", start=30)
        check(turn, references[0], 30)
        return cached

    first, again, other = served.run(body)
    assert (first, other) == (0, 0)
    assert again == 256


def broken(kind: str, other: Path, folder: Path) -> Path:
    shutil.copytree(other, folder)
    weights = folder / "model.safetensors"
    if kind == "incomplete":
        (folder / "COMPLETE").unlink()
    elif kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif kind == "empty":
        weights.unlink()
    elif kind == "index":
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.weight": "absent"}}')
    else:
        import torch
        from safetensors.torch import load_file, save_file

        tensors = load_file(weights)
        if kind == "shape":
            tensors["model.norm.weight"] = torch.ones(3)
        else:
            del tensors["model.layers.1.mlp.experts.3.up_proj.weight"]
        save_file(tensors, weights)
    return folder


@pytest.mark.parametrize("kind", ["incomplete", "truncated", "empty", "index", "shape", "missing"])
def test_rejected_folder_leaves_old_weights(
    kind: str, served: Served, references: tuple[Reference, Reference], tmp_path: Path
) -> None:
    async def body(engine: Endless) -> None:
        await update(engine, 4, served.other)
        await engine.pause()
        waiting = asyncio.create_task(ask(engine, f"held-{kind}"))
        with pytest.raises(EngineFailure, match="serves on"):
            await engine.load(5, broken(kind, served.other, tmp_path / "policy"))
        turn = await waiting  # the client has resumed the engine
        assert set(turn.versions) == {4}
        check(turn, references[1])
        await update(engine, 6, served.base)
        turn = await ask(engine, f"after-{kind}")
        assert set(turn.versions) == {6}
        check(turn, references[0])

    served.run(body)


def test_update_in_flight_gives_two_ranges(served: Served, references: tuple[Reference, Reference]) -> None:
    async def body(engine: Endless) -> Turn:
        for attempt in range(5):  # on a busy machine a burst may last as long as the request: once more
            await update(engine, 7, served.base)
            before = served.generated()
            await engine.pause()
            task = asyncio.create_task(ask(engine, f"flight-{attempt}", count=400))
            await served.step_until(engine, before + 10)
            if not task.done():
                break
            await engine.resume()
        await update(engine, 8, served.other)
        return await task

    turn = served.run(body)
    old = turn.versions.index(8)
    assert old >= 10
    assert turn.versions == (7,) * old + (8,) * (400 - old)
    assert turn.routed_rows == len(PROMPT) + 400 - 1
    logprobs, _ = references[0]([*PROMPT, *turn.tokens], len(PROMPT))
    gap = np.abs(np.array(turn.logprobs) - logprobs)
    assert gap[:old].mean() <= EXACT
    assert gap[old:].mean() > 0.01


def test_lost_answer_of_an_update_is_mended(served: Served, references: tuple[Reference, Reference]) -> None:
    async def body(engine: Endless) -> Turn:
        await engine._admin("/start_weight_update", {})
        await update(engine, 9, served.other)
        return await ask(engine, "lost")

    turn = served.run(body)
    assert set(turn.versions) == {9}
    check(turn, references[1])


def test_abort_ends_one_request(served: Served) -> None:
    async def body(engine: Endless) -> Turn:
        await engine.pause()
        gone = asyncio.create_task(ask(engine, "gone", count=440))
        stays = asyncio.create_task(ask(engine, "stays", count=440))
        while not gone.done():  # an abort that comes before its request finds nothing
            await engine.abort(["gone"])
            await asyncio.sleep(0.05)
        assert not stays.done()
        with pytest.raises(EngineFailure, match="aborted"):
            await gone
        await engine.resume()
        return await stays

    turn = served.run(body)
    assert len(turn.tokens) == 440
