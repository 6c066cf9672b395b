"""One rollout: turns of model and environment, token in, token out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from prlc.runtime.environments.base import Environment, Task
from prlc.runtime.orchestrator.engines import EngineFailure, Slot
from prlc.schema.orchestrator import OrchestratorConfig


class Tokenizer(Protocol):
    """Words to tokens for what the environment says, tokens to words for what the model said."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, none added."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Text of tokens, special ones included."""
        ...


@dataclass
class Sample:
    """A rollout as the trainer sees it. Row i of `routed` belongs to token i; the last token has none."""

    rollout: int
    tokens: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    routed: bytes = b""
    routed_rows: int = 0
    reward: float = 0.0
    advantage: float = 0.0
    truncated: bool = False

    @property
    def oldest(self) -> int:
        """The oldest policy version that wrote a token of it; -1 before the first."""
        return min((version for version in self.versions if version >= 0), default=-1)

    def say(self, tokens: list[int]) -> None:
        """Append tokens that no policy wrote."""
        self.tokens += tokens
        self.loss_mask += [0] * len(tokens)
        self.logprobs += [0.0] * len(tokens)
        self.versions += [-1] * len(tokens)


def row_bytes(config: OrchestratorConfig) -> int:
    """Bytes of one token's expert row: uint8 up to 256 experts, else uint16."""
    return config.moe_layers * config.top_k * (1 if config.num_experts <= 256 else 2)


async def play(
    sample: Sample,
    task: Task,
    environment: Environment,
    tokenizer: Tokenizer,
    slot: Slot,
    salt: str,
    config: OrchestratorConfig,
    prefix: str = "r",
) -> Sample:
    """Fill `sample` turn by turn. Raises EngineFailure, also for incomplete rows or logprobs."""
    sample.say(tokenizer.encode(task.prompt))
    if len(sample.tokens) >= config.seq_len:
        raise ValueError(f"a prompt of {len(sample.tokens)} tokens leaves no room in seq_len {config.seq_len}")
    turns: list[str] = []
    while True:
        start = sample.routed_rows if config.routed_experts else None
        turn = await slot.engine.generate(
            request_id=f"{prefix}{sample.rollout}-{len(turns)}",
            tokens=list(sample.tokens),
            max_tokens=min(config.sampling.max_tokens, config.seq_len - len(sample.tokens)),
            cache_salt=salt,
            routed_start=start,
        )
        count = len(turn.tokens)
        if not count or len(turn.logprobs) != count or len(turn.versions) != count:
            raise EngineFailure(
                f"{slot.engine.name}: {count} tokens, {len(turn.logprobs)} logprobs, {len(turn.versions)} versions"
            )
        sample.tokens += turn.tokens
        sample.loss_mask += [1] * count
        sample.logprobs += turn.logprobs
        sample.versions += turn.versions
        if start is not None:
            wanted = len(sample.tokens) - 1 - start
            if turn.routed_rows != wanted or len(turn.routed) != wanted * row_bytes(config):
                raise EngineFailure(
                    f"{slot.engine.name}: {turn.routed_rows} expert rows ({len(turn.routed)} bytes), wanted {wanted}"
                )
            sample.routed += turn.routed
            sample.routed_rows += turn.routed_rows
        turns.append(tokenizer.decode(list(turn.tokens)))
        reply = environment.respond(task, turns)
        if reply.done or len(turns) >= config.sampling.max_turns:
            break
        said = tokenizer.encode(reply.text)
        if len(sample.tokens) + len(said) >= config.seq_len:
            sample.truncated = True
            break
        sample.say(said)
    sample.reward = environment.reward(task, turns)
    return sample
