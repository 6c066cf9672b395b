"""A vLLM server as the orchestrator's engine, over HTTP; every call has a deadline.

Generation: POST /inference/v1/generate (needs --enable-scale-out). Others need VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from prlc.runtime.orchestrator.engines import EngineFailure, Turn
from prlc.schema.orchestrator import OrchestratorConfig
from pydantic_core import from_json, to_json

# How the weight-transfer backend prlc_fs ends the message of an update that left the old weights in place.
REJECTED = re.compile(r"serves (on|again)")

DROPPED = (httpx.ReadError, httpx.RemoteProtocolError)
BUSY = 503
BUSY_WAITS = (0.25, 0.5, 1.0, 2.0, 4.0)  # seconds before the next try of a request that was refused as BUSY


class _Refused(EngineFailure):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class HttpEngine:
    """One server. `generate_url` is its own, or the router's; aborts go to all of `abort_urls`."""

    def __init__(
        self,
        name: str,
        url: str,
        config: OrchestratorConfig,
        client: httpx.AsyncClient,
        generate_url: str | None = None,
        abort_urls: tuple[str, ...] = (),
    ) -> None:
        self.name, self.url, self.config, self.client = name, url, config, client
        self.generate_url, self.abort_urls = generate_url or url, abort_urls or (url,)
        # Request -> ids of its tries that a server may be working on: of calls that go on, and of calls given up.
        self._open: dict[str, list[str]] = {}
        self._given_up: dict[str, list[str]] = {}

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
        """Continue `tokens`. Raises EngineFailure, at the latest when request_deadline has passed.

        A request that failed or was cancelled may still run on a server: `abort` ends it.
        """
        sampling: dict[str, Any] = {
            "temperature": self.config.sampling.temperature,
            "max_tokens": max_tokens,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "logprobs": 0,
        }
        if stop_token_ids:
            sampling["stop_token_ids"] = list(stop_token_ids)
        if routed_start is not None:
            sampling["routed_experts_prompt_start"] = routed_start
        body = {
            "token_ids": tokens,
            "sampling_params": sampling,
            "cache_salt": cache_salt,
        }
        try:
            answer = await self._ask(request_id, body)
        except BaseException:
            self._given_up[request_id] = self._open.pop(request_id, [])
            raise
        del self._open[request_id]
        try:
            choice = answer["choices"][0]
            if choice.get("finish_reason") == "abort":
                raise EngineFailure(f"{self.name}: the request was aborted")
            out = tuple(int(token) for token in choice["token_ids"])
            logprobs = tuple(float(entry["logprob"]) for entry in choice["logprobs"]["content"])
            ranges = choice.get("weight_versions") or answer.get("weight_versions")
            versions = _versions(ranges, len(out))
            if routed_start is None:
                return Turn(out, logprobs, versions)
            rows = self._rows(choice["routed_experts"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineFailure(f"{self.name}: an answer that cannot be used: {error!r}") from error
        return Turn(out, logprobs, versions, rows.tobytes(), len(rows))

    async def _ask(self, request_id: str, body: dict[str, Any]) -> Any:
        """Send a request: again while the server is busy, and once more after a lost connection."""
        end = asyncio.get_running_loop().time() + self.config.request_deadline
        url = f"{self.generate_url}/inference/v1/generate"
        sent = self._open.setdefault(request_id, [])
        waits, lost = iter(BUSY_WAITS), False
        while True:
            # Each try has an id of its own: a server refuses one that it still knows.
            name = f"{request_id}-again" if lost else request_id
            if name not in sent:
                sent.append(name)
            left = end - asyncio.get_running_loop().time()
            try:
                return await self._post(url, {**body, "request_id": name}, left)
            except _Refused as error:
                wait = next(waits, None) if error.status == BUSY else None
                if wait is None:
                    raise
                await asyncio.sleep(min(wait, max(left, 0.0)))
            except EngineFailure as error:
                # A kept connection that the server closed just then; a dead server refuses the second one.
                if lost or not isinstance(error.__cause__, DROPPED):
                    raise
                lost = True

    def _rows(self, text: str) -> np.ndarray[Any, Any]:
        """Rows of the layers with experts; those of dense layers are zero."""
        rows = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
        dtype = np.uint8 if self.config.num_experts <= 256 else np.uint16
        layers = rows.shape[1] if rows.ndim == 3 else -1
        places = self.config.moe_layer_ids or range(layers - self.config.moe_layers, layers)
        dense = [place for place in range(layers) if place not in places]
        fits = layers > max(places, default=-1) and layers - len(dense) == self.config.moe_layers
        if not fits or rows.shape[2] != self.config.top_k or rows.dtype != dtype or rows[:, dense].any():
            raise ValueError(f"expert rows of shape {rows.shape}, {rows.dtype}")
        return np.ascontiguousarray(rows[:, list(places)])

    async def abort(self, request_ids: list[str]) -> None:
        """End every try of these requests that a server may be working on. Raises EngineFailure of this engine."""
        tries = [
            name for request in request_ids for name in [*self._open.get(request, ()), *self._given_up.pop(request, ())]
        ]
        names = [f"generate-tokens-{name}" for name in tries]  # as the server calls them
        if not names:
            return
        body = {"request_ids": names}
        calls = (self._post(f"{url}/abort_requests", body, self.config.admin_deadline) for url in self.abort_urls)
        for url, result in zip(self.abort_urls, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            # Behind a router any engine may have it; one that is away is the matter of its own slot.
            if isinstance(result, BaseException) and (url == self.url or not isinstance(result, EngineFailure)):
                raise result

    async def pause(self) -> None:
        """Stop stepping, keep requests and their KV. Raises EngineFailure."""
        await self._admin("/pause?mode=keep&clear_cache=false", {})

    async def load(self, version: int, folder: Path) -> None:
        """Load a checkpoint folder, then ask which version is served. Raises EngineFailure.

        An engine that rejects the folder is resumed: its requests in flight go on with its old weights.
        """
        try:
            await self._admin("/start_weight_update", {})
        except EngineFailure as error:
            if "already active" not in str(error):
                raise
            # An update of which an answer was lost: the weights are whole, only its end is missing.
            await self._admin("/finish_weight_update", {})
            await self._admin("/start_weight_update", {})
        try:
            await self._admin("/update_weights", {"update_info": {"path": str(folder)}})
        except EngineFailure as error:
            if REJECTED.search(str(error)):
                await self.resume()
            raise
        await self._admin("/finish_weight_update", {"weight_version": str(version)})
        served = await self._call("GET", self.url + "/weight_info", None, self.config.admin_deadline)
        found = served.get("weight_version") if isinstance(served, dict) else served
        if found != str(version):
            raise EngineFailure(f"{self.name}: serves version {found!r} after an update to {version}")

    async def resume(self) -> None:
        """Go on. Raises EngineFailure."""
        await self._admin("/resume", {})

    async def _admin(self, route: str, body: dict[str, Any]) -> None:
        # The server drops a connection after it has answered 500, so none is used for a second call.
        await self._post(self.url + route, body, self.config.admin_deadline, {"Connection": "close"})

    async def _post(
        self, url: str, body: dict[str, Any], deadline: float, headers: dict[str, str] | None = None
    ) -> Any:
        return await self._call("POST", url, body, deadline, headers)

    async def _call(
        self, method: str, url: str, body: dict[str, Any] | None, deadline: float, headers: dict[str, str] | None = None
    ) -> Any:
        # A long conversation is 131,072 token ids a turn, which json.dumps takes 4 times as long for.
        content = None if body is None else to_json(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            # httpx bounds each read and write, but not the whole.
            async with asyncio.timeout(deadline):
                answer = await self.client.request(method, url, content=content, timeout=None, headers=headers)
        except TimeoutError:
            raise EngineFailure(f"{self.name}: {url}: no answer in time") from None
        except httpx.HTTPError as error:
            raise EngineFailure(f"{self.name}: {url}: {type(error).__name__} {error}") from error
        if answer.status_code >= 300:
            raise _Refused(
                f"{self.name}: {url} answered {answer.status_code}: {answer.text[:1000]}", answer.status_code
            )
        try:
            return from_json(answer.content) if answer.content else None
        except ValueError:
            return None


def _versions(ranges: list[dict[str, Any]] | None, count: int) -> tuple[int, ...]:
    """Policy version of each token. Before the first update the engine has no number: the base model, 0."""
    versions = [-1] * count
    for entry in ranges or [{"version": "0", "start": 0, "end": count}]:
        text = str(entry["version"])
        version = int(text) if text.isdigit() else 0
        for index in range(int(entry["start"]), min(int(entry["end"]), count)):
            versions[index] = version
    if -1 in versions:
        raise ValueError(f"weight_versions leave tokens out: {ranges}")
    return tuple(versions)
