"""Words and tokens of a verifiers rollout: what the model wrote is never tokenised again.

A prompt is rendered once. From then on only the new messages are: by the model's own renderer (`renderers`, which
knows how each family closes a turn), else by the difference of two renderings of the chat template, after a check
that the template leaves what was said before as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prlc.runtime.environments.base import RolloutFailed
from pydantic import TypeAdapter
from renderers import RendererConfig, create_renderer
from renderers.base import ParsedResponse, ToolCallParseStatus, load_tokenizer
from renderers.default import DefaultRenderer

Wire = list[dict[str, Any]]


class Chat:
    """The chat template of the model in a folder. `settings` choose the renderer, its parsers and template words."""

    def __init__(self, model: Path, settings: Mapping[str, Any]) -> None:
        config = TypeAdapter(RendererConfig).validate_python(dict(settings)) if settings else None
        self.renderer = create_renderer(load_tokenizer(str(model)), config)
        self.stop_token_ids = tuple(self.renderer.get_stop_token_ids())

    def opening(self, messages: Wire, tools: Wire | None) -> list[int]:
        """Tokens of a conversation up to the model's first word. Raises RolloutFailed."""
        if tools and not getattr(self.renderer, "supports_tools", True):
            raise RolloutFailed(
                "the default renderer cannot read tool calls: name a renderer in environment.args.renderer, e.g. "
                "{name: qwen3}, or {name: default, tool_parser: qwen3}"
            )
        return list(self.renderer.render(messages, tools=tools, add_generation_prompt=True).token_ids)

    def extension(
        self, prompt: list[int], completion: list[int], messages: Wire, new: int, tools: Wire | None
    ) -> list[int]:
        """Tokens of the last `new` messages, up to the model's next word; they follow `prompt` + `completion`.

        Raises RolloutFailed where they cannot be appended without changing what stands before them.
        """
        tail = messages[-new:] if new else []
        if not tail or any(message["role"] == "assistant" for message in tail):
            raise RolloutFailed("the program rewrote its history; a rollout is one growing sequence of tokens")
        bridged = self.renderer.bridge_to_next_turn(prompt, completion, tail, tools=tools)
        if bridged is not None:
            before = prompt + completion
            if list(bridged.token_ids[: len(before)]) != before:
                raise RolloutFailed("the renderer changed tokens that were said before")
            return list(bridged.token_ids[len(before) :])
        if not isinstance(self.renderer, DefaultRenderer):
            roles = ", ".join(message["role"] for message in tail)
            raise RolloutFailed(f"{type(self.renderer).__name__} cannot append messages of {roles}")
        return self._difference(completion, messages, new, tools)

    def _difference(self, completion: list[int], messages: Wire, new: int, tools: Wire | None) -> list[int]:
        before = self.renderer.render_ids(messages[:-new], tools=tools)
        after = self.renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
        closed = [index for index, token in enumerate(before) if token in self.stop_token_ids]
        if after[: len(before)] != before or not closed:
            raise RolloutFailed(
                "the chat template rewrites earlier turns, or does not end them with an end token: "
                "name the model's renderer in environment.args.renderer"
            )
        rest = list(after[closed[-1] + 1 :])
        # A turn that was cut off at max_tokens has no end yet.
        return rest if completion[-1] in self.stop_token_ids else [before[closed[-1]], *rest]

    def parse(self, prompt: list[int], completion: list[int], tools: Wire | None) -> ParsedResponse:
        """Text, reasoning and tool calls of a completion."""
        return self.renderer.parse_response(completion, tools=tools, prompt_ids=prompt)

    def finish_reason(self, completion: list[int], parsed: ParsedResponse) -> str:
        """As in the chat completions API."""
        if completion[-1] not in self.stop_token_ids:
            return "length"
        called = any(call.status == ToolCallParseStatus.OK for call in parsed.tool_calls)
        return "tool_calls" if called else "stop"
