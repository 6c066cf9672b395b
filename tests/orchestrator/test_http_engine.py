"""HttpEngine against a small server on loopback that loses connections, is busy, or never answers."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("numpy")

import httpx
from prlc.runtime.environments.base import load
from prlc.runtime.orchestrator import http_engine
from prlc.runtime.orchestrator.dispatcher import Dispatcher
from prlc.runtime.orchestrator.engines import EngineFailure, Slot, Turn
from prlc.runtime.orchestrator.http_engine import HttpEngine
from prlc.runtime.orchestrator.ledger import Ledger

from tests.orchestrator.test_orchestrator import Words, config

pytestmark = pytest.mark.timeout(60)


@dataclass
class Server:
    """Does, for the i-th generation or the one of a name, what the script says; any other is answered.

    reset: reads the request and resets the connection. close: closes it without an answer. busy: 503. hang: reads and
    waits. drip: sends a byte of the answer's head now and then. bad: 500. answer: two tokens.
    """

    script: list[str] | dict[str, str]
    requests: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split()[1].decode()
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                body = json.loads(await reader.readexactly(length))
                if path == "/abort_requests":
                    self.aborted += body["request_ids"]
                    await self.answer(writer, 200, {})
                elif not await self.generate(writer, body):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def generate(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> bool:
        named = self.script if isinstance(self.script, dict) else dict(enumerate(self.script))
        does = named.get(body["request_id"], named.get(len(self.requests), "answer"))  # type: ignore[call-overload]
        self.requests.append(body["request_id"])
        self.bodies.append(body)
        if does == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER of 0 s: a reset
            return False
        if does == "close":
            return False
        if does == "busy":
            await self.answer(writer, 503, {"error": "queue full"})
        elif does == "bad":
            await self.answer(writer, 500, {"error": "broken"})
        elif does == "hang":
            self.waiting.set()
            await asyncio.sleep(3600)
        elif does == "drip":
            for byte in b"HTTP/1.1 200 OK\r\n" + b"x-more: 1\r\n" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        else:
            entries = [{"logprob": -0.5}, {"logprob": -0.25}]
            choice = {"token_ids": [1, 2], "logprobs": {"content": entries}, "finish_reason": "stop"}
            await self.answer(writer, 200, {"choices": [choice]})
        return True

    async def answer(self, writer: asyncio.StreamWriter, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()


def against(
    script: list[str] | dict[str, str], scene: Callable[[Server, HttpEngine], Awaitable[Any]], **changes: Any
) -> Server:
    async def run() -> Server:
        server = Server(script)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with httpx.AsyncClient(trust_env=False) as client:
            await scene(server, HttpEngine("e", url, config(routed_experts=False, **changes), client))
        listening.close()
        return server

    return asyncio.run(run())


def ask(engine: HttpEngine, name: str = "r0-0") -> Awaitable[Turn]:
    return engine.generate(
        request_id=name, tokens=[1, 2], max_tokens=2, cache_salt="v0", routed_start=None, stop_token_ids=(9,)
    )


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_engine, "BUSY_WAITS", (0.01, 0.02))


@pytest.mark.parametrize("loss", ["reset", "close"])
def test_a_lost_connection_gets_one_more_try_under_a_new_id(loss: str) -> None:
    async def scene(server: Server, engine: HttpEngine) -> None:
        assert (await ask(engine)).tokens == (1, 2)
        await engine.abort(["r0-0"])

    server = against([loss], scene)
    assert server.requests == ["r0-0", "r0-0-again"]
    assert server.bodies[1]["sampling_params"]["stop_token_ids"] == [9]
    assert server.aborted == []  # nothing is in flight any more


def test_two_lost_connections_are_a_lost_engine() -> None:
    async def scene(server: Server, engine: HttpEngine) -> None:
        with pytest.raises(EngineFailure, match=r"RemoteProtocolError|ReadError"):
            await ask(engine)
        await engine.abort(["r0-0"])
        await engine.abort(["r0-0"])

    server = against(["close", "reset"], scene)
    assert server.requests == ["r0-0", "r0-0-again"]
    assert server.aborted == ["generate-tokens-r0-0", "generate-tokens-r0-0-again"]


def test_a_busy_server_is_asked_again_and_not_for_ever() -> None:
    async def patient(server: Server, engine: HttpEngine) -> None:
        assert (await ask(engine)).versions == (0, 0)

    assert against(["busy", "busy"], patient).requests == ["r0-0"] * 3

    async def lost(server: Server, engine: HttpEngine) -> None:
        with pytest.raises(EngineFailure, match=r"503.*queue full"):
            await ask(engine)

    assert against(["busy"] * 9, lost).requests == ["r0-0"] * 3


def test_other_refusals_are_final() -> None:
    async def scene(server: Server, engine: HttpEngine) -> None:
        with pytest.raises(EngineFailure, match=r"500.*broken"):
            await ask(engine)

    assert against(["bad"], scene).requests == ["r0-0"]


@pytest.mark.parametrize("script", [["hang"], ["drip"], ["close", "hang"], ["busy", "drip"]])
def test_the_deadline_holds_for_all_tries_together(script: list[str]) -> None:
    async def scene(server: Server, engine: HttpEngine) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(EngineFailure, match="no answer in time"):
            await ask(engine)
        assert asyncio.get_running_loop().time() - began < 3
        await engine.abort(["r0-0"])

    server = against(script, scene, request_deadline=0.5)
    assert len(server.requests) == len(script)
    assert f"generate-tokens-{server.requests[-1]}" in server.aborted


@pytest.mark.parametrize(
    ("script", "live"),
    [({"a1-0-0": "hang"}, "a1-0-0"), ({"a1-0-0": "close", "a1-0-0-again": "hang"}, "a1-0-0-again")],
)
def test_a_cancelled_rollout_aborts_the_request_that_is_in_flight(script: dict[str, str], live: str) -> None:
    """The other rollout of its group has ended by then, and nothing of it is aborted."""
    ledger = Ledger()

    async def scene(server: Server, engine: HttpEngine) -> None:
        dispatcher = Dispatcher(
            config(routed_experts=False, group_size=2),
            load("lookup", {}),
            Words(),
            [Slot(engine)],
            ledger,
            lambda _: None,
            lambda *_: None,
            lambda _: None,
        )
        dispatcher.fill(1)
        await asyncio.wait_for(server.waiting.wait(), 5)
        while server.requests.count(live) == 0 or "a1-1-0" not in server.requests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert await dispatcher.cancel_stale(9) == 1

    server = against(script, scene)
    assert f"generate-tokens-{live}" in server.aborted
    assert "generate-tokens-a1-1-0" not in server.aborted
    assert ledger.dropped["stale_inflight"] == 2
    ledger.check()


def test_behind_a_router_an_abort_goes_to_all_and_fails_for_its_own_engine_alone() -> None:
    away = "http://127.0.0.1:9"

    async def scene(server: Server, engine: HttpEngine) -> None:
        there = engine.url
        for own in (there, away):
            behind = HttpEngine("e", own, engine.config, engine.client, there, (there, away))
            name = "r0-0" if own == there else "r1-0"
            call = asyncio.ensure_future(ask(behind, name))
            while name not in server.requests:
                await asyncio.sleep(0.01)
            if own == there:
                await behind.abort([name])
            else:
                with pytest.raises(EngineFailure, match="ConnectError"):
                    await behind.abort([name])
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    server = against({"r0-0": "hang", "r1-0": "hang"}, scene)
    assert server.aborted == ["generate-tokens-r0-0", "generate-tokens-r1-0"]
