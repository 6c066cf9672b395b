"""Every route of a vLLM server wants the run's token: `--middleware prlc.runtime.inference.access.RunToken`.

vLLM's own --api-key guards /v1 alone; the routes of weight updates, of generation by tokens and of metrics stay open.
A middleware that is added last is the outermost, so this one stands in front of all of them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prlc.runtime.ops import token

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# vllm-router sends no Authorization with its probes; the answer says only that the server lives
OPEN_HEALTH = "PRLC_OPEN_HEALTH"


class RunToken:
    """ASGI middleware: 401 for a request without the token, 1008 for such a websocket."""

    def __init__(self, app: Application) -> None:
        """Raises KeyError, OSError or ValueError where there is no token: a server without one must not start."""
        self.app = app
        self.token = token.current()
        self.open_health = os.environ.get(OPEN_HEALTH) == "1"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        kind = scope["type"]
        if kind == "lifespan" or self._allowed(scope):
            await self.app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"the run's token is missing or wrong\n"})

    def _allowed(self, scope: Scope) -> bool:
        if self.open_health and scope.get("path") == "/health" and scope.get("method") == "GET":
            return True
        found = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        return len(found) == 1 and token.carried(found[0].decode("latin-1"), self.token)
