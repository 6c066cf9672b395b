"""The model of a verifiers rollout: its Client interface, answered by the rollout's own policy.

verifiers' own training client sends token ids to one vLLM server and brings back ids, logprobs and experts, but no
policy versions, and the orchestrator could neither route, nor cancel, nor count its requests. So the requests of a
rollout's program come here and go to its Policy; verifiers gets the text and the tokens for its trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from prlc.runtime.environments.base import NoRoom, Policy, RolloutFailed
from prlc.runtime.environments.verifiers_chat import Chat
from verifiers.v1.clients import Client
from verifiers.v1.clients.train import response_from_generate, serialize_completion, tool_to_wire
from verifiers.v1.configs.client import BaseClientConfig
from verifiers.v1.dialects import ChatDialect, Dialect
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import ProviderError
from verifiers.v1.graph import PendingTurn
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.types import Response, SamplingConfig


class PolicyClient(Client):
    """Answers the rollouts in `policies`, by trace id; why one failed is kept in `failures`."""

    def __init__(self, chat: Chat, name: str) -> None:
        self.chat, self.name = chat, name
        self.policies: dict[str, Policy] = {}
        self.failures: dict[str, Exception] = {}
        self._encoding = asyncio.Lock()  # encoding changes a fast tokenizer's state

    async def get_response(
        self,
        dialect: Dialect,
        body: dict[str, Any],
        sampling: SamplingConfig,
        session_id: str | None = None,
        turn: PendingTurn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One turn of the model. Raises ProviderError with status 400, so that no program asks again."""
        trace = session_id or ""
        if turn is None or trace not in self.policies:
            raise ProviderError("no rollout of this id", status_code=400)
        try:
            if not isinstance(dialect, ChatDialect):
                raise RolloutFailed("the program must speak the chat completions API")
            return await self._answer(self.policies[trace], turn)
        except NoRoom as error:
            turn.trace.stop("seq_len")
            raise ProviderError(str(error), status_code=400) from error
        except Exception as error:  # whatever it is, it is the rollout's end and must not be lost on its way
            self.failures.setdefault(trace, error)
            raise ProviderError(str(error), status_code=400) from error

    async def _answer(self, policy: Policy, turn: PendingTurn) -> Response:
        tools = [tool_to_wire(tool) for tool in turn.tools] or None
        messages = [message_to_wire(message) for message in turn.prompt]
        async with self._encoding:
            said = await asyncio.to_thread(self._said, policy, turn, messages, tools)
        completion = await policy.turn(said, self.chat.stop_token_ids)
        prompt = policy.tokens[: -len(completion)]
        parsed = self.chat.parse(prompt, completion, tools)
        result = {
            "prompt_ids": prompt,
            "completion_ids": completion,
            "content": parsed.content,
            "reasoning_content": parsed.reasoning_content,
            "tool_calls": parsed.tool_calls,
            "finish_reason": self.chat.finish_reason(completion, parsed),
        }
        response = response_from_generate(result, self.name)
        response.raw = serialize_completion(response, self.name)
        return response

    def _said(self, policy: Policy, turn: PendingTurn, messages: Any, tools: Any) -> list[int]:
        if not policy.tokens:
            return self.chat.opening(messages, tools)
        previous = turn.previous_renderer_token_ids()
        if previous is None or [*previous[0], *previous[1]] != policy.tokens:
            raise RolloutFailed("the program rewrote its history; a rollout is one growing sequence of tokens")
        prompt, completion = previous
        return self.chat.extension(prompt, completion, messages, len(turn.tail), tools)


class PolicyInterception(InterceptionServer):
    """verifiers' server of model requests, on loopback, with our client behind it."""

    def __init__(self, client: PolicyClient, **settings: Any) -> None:
        super().__init__(**settings)
        self.policy_client = client

    def _client(self, config: BaseClientConfig) -> Client:
        return self.policy_client
