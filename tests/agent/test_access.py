"""The token's file, and the middleware that wants it of every request."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from prlc.runtime.inference.access import RunToken
from prlc.runtime.ops import token
from prlc.runtime.ops.run_paths import RunPaths


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = RunPaths(tmp_path).token(1)
    path.parent.mkdir(parents=True)
    token.make(path)
    monkeypatch.setenv("PRLC_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("PRLC_ATTEMPT", "1")
    monkeypatch.delenv("PRLC_OPEN_HEALTH", raising=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return token.read(path)


def ask(kind: str = "http", path: str = "/pause", *headers: str, method: str = "POST") -> list[Any]:
    """What the server sends for one request; 'inside' where the request reached the application."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        sent.append("inside")

    async def send(message: Any) -> None:
        sent.append(message.get("status", message.get("code")))

    async def receive() -> Any:
        raise AssertionError("nothing of a refused request is read")

    scope = {
        "type": kind, "path": path, "method": method,
        "headers": [(b"authorization", header.encode()) for header in headers],
    }  # fmt: skip
    asyncio.run(RunToken(application)(scope, receive, send))
    return [each for each in sent if each is not None]


@pytest.mark.parametrize("path", ["/pause", "/v1/models", "/health", "/metrics", "/collective_rpc", "/"])
def test_no_route_answers_without_the_token(secret: str, path: str) -> None:
    assert ask("http", path) == [401]
    assert ask("http", path, "Bearer wrong") == [401]
    assert ask("http", path, secret) == [401], "the scheme is part of it"
    assert ask("http", path, "Bearer wrong", f"Bearer {secret}") == [401], "one header, no choice"
    assert ask("http", path, f"Bearer {secret}") == ["inside"]


def test_a_websocket_is_closed_and_the_servers_own_start_passes(secret: str) -> None:
    assert ask("websocket", "/v1/realtime") == [1008]
    assert ask("websocket", "/v1/realtime", f"Bearer {secret}") == ["inside"]
    assert ask("lifespan") == ["inside"]


def test_health_is_open_where_the_router_has_no_token_to_send(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRLC_OPEN_HEALTH", "1")
    assert ask("http", "/health", method="GET") == ["inside"]
    assert ask("http", "/health", method="POST") == [401]
    assert ask("http", "/health/more", method="GET") == [401]


def test_a_server_without_a_token_does_not_start(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRLC_ATTEMPT", "2")
    with pytest.raises(FileNotFoundError):
        ask()


def test_a_token_is_made_once_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    token.make(tmp_path / "token")
    with pytest.raises(FileExistsError):
        token.make(tmp_path / "token")
    (tmp_path / "empty").touch(0o600)
    with pytest.raises(ValueError, match="holds no token"):
        token.read(tmp_path / "empty")
