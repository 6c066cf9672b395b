"""The chat program of a verifiers rollout, in this process.

verifiers' `null` harness runs the same loop as a script of its own, for which `uv` fetches packages when the rollout
starts; a bundle fetches nothing, so the loop runs here. Code that a model writes never runs here: tools are servers.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
from verifiers.v1.clients import ModelContext
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.compaction import bound_tool_message
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace


class ChatProgram(NullHarness):
    """Model and tools in turn until a reply without a tool call; every wait is bounded by the rollout's deadline."""

    SUPPORTS_TOOL_INTERCEPTION = False

    async def setup(self, runtime: Runtime) -> None:
        """Nothing to prepare."""

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        """One run to its end. An error of the model's endpoint raises; verifiers records the cause that it knows."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None, trust_env=False))
            while True:
                answer = await client.post(
                    f"{endpoint}/chat/completions",
                    headers={"Authorization": f"Bearer {secret}"},
                    json={"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})},
                )
                if answer.status_code >= 300:
                    return ProgramResult(exit_code=1, stdout="", stderr=answer.text[-2000:])
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return ProgramResult(exit_code=0, stdout="", stderr="")
                for call in message["tool_calls"]:
                    name = call["function"]["name"]
                    content = await _result(connections, dispatch, name, call["function"]["arguments"])
                    result = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}
                    messages.append(bound_tool_message(result))


async def _result(connections: Any, dispatch: Any, name: str, arguments: str) -> Any:
    """What the model is told; a wrong call is the model's to mend, so it is an answer and not an error."""
    if name not in dispatch:
        return f"error: unknown tool {name!r}"
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError as error:
        return f"error: invalid JSON in tool arguments ({error}); resend the call with valid JSON"
    if not isinstance(parsed, dict):
        return f"error: tool arguments must be a JSON object, got {type(parsed).__name__}; resend as an object"
    return await call_mcp(connections, dispatch, name, parsed)
