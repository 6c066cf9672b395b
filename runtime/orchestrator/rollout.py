"""One rollout: turns of model and environment, token in, token out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from prlc.runtime.environments.base import (
    AnyEnvironment,
    DrivingEnvironment,
    Environment,
    NoRoom,
    RolloutFailed,
    Task,
)
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
    routed: bytearray = field(default_factory=bytearray)
    routed_rows: int = 0
    reward: float = 0.0
    advantage: float = 0.0
    turns: int = 0
    truncated: bool = False
    request: str = ""  # id of the request in flight

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


class Conversation:
    """The Policy of one rollout: every turn goes to one engine and into one sample."""

    def __init__(self, sample: Sample, slot: Slot, salt: str, config: OrchestratorConfig, prefix: str = "r") -> None:
        self.sample, self.slot, self.salt, self.config, self.prefix = sample, slot, salt, config, prefix
        self.max_turns = config.sampling.max_turns
        self.version = slot.version  # at dispatch; the engine may only rise from it
        self.failure: Exception | None = None
        self._row_bytes = row_bytes(config)

    @property
    def tokens(self) -> list[int]:
        """What was said so far."""
        return self.sample.tokens

    async def turn(self, said: list[int], stop_token_ids: tuple[int, ...] = ()) -> list[int]:
        """As in Policy; EngineFailure also for incomplete rows or logprobs.

        A failure is kept too, in `failure`: an environment may lose an exception on its way.
        """
        sample = self.sample
        if sample.request:
            self.failure = RolloutFailed("two turns of one rollout at once")
            raise self.failure
        if len(sample.tokens) + len(said) >= self.config.seq_len:
            sample.truncated = True
            raise NoRoom(f"{len(sample.tokens) + len(said)} tokens leave no room in seq_len {self.config.seq_len}")
        sample.say(said)
        try:
            return await self._generate(stop_token_ids)
        except EngineFailure as error:
            self.failure = error
            raise

    async def _generate(self, stop_token_ids: tuple[int, ...]) -> list[int]:
        sample, engine = self.sample, self.slot.engine
        start = sample.routed_rows if self.config.routed_experts else None
        sample.request = f"{self.prefix}{sample.rollout}-{sample.turns}"
        turn = await engine.generate(
            request_id=sample.request,
            tokens=list(sample.tokens),
            max_tokens=min(self.config.sampling.max_tokens, self.config.seq_len - len(sample.tokens)),
            cache_salt=self.salt,
            routed_start=start,
            stop_token_ids=stop_token_ids,
        )
        sample.request = ""
        count = len(turn.tokens)
        if not count or len(turn.logprobs) != count or len(turn.versions) != count:
            raise EngineFailure(
                f"{engine.name}: {count} tokens, {len(turn.logprobs)} logprobs, {len(turn.versions)} versions"
            )
        if not all(map(math.isfinite, turn.logprobs)):
            raise EngineFailure(f"{engine.name}: a logprob that is no number")
        if turn.versions[0] < self.version:
            # It was started again, with the base model, and nobody has brought it up to date.
            raise EngineFailure(f"{engine.name}: serves version {turn.versions[0]}, it was given {self.version}")
        if start is not None:
            wanted = len(sample.tokens) + count - 1 - start
            if turn.routed_rows != wanted or len(turn.routed) != wanted * self._row_bytes:
                raise EngineFailure(
                    f"{engine.name}: {turn.routed_rows} expert rows ({len(turn.routed)} bytes), wanted {wanted}"
                )
            sample.routed += turn.routed
            sample.routed_rows += turn.routed_rows
        sample.tokens += turn.tokens
        sample.loss_mask += [1] * count
        sample.logprobs += turn.logprobs
        sample.versions += turn.versions
        sample.turns += 1
        return list(turn.tokens)


async def play(
    sample: Sample,
    task: Task,
    environment: AnyEnvironment,
    tokenizer: Tokenizer,
    slot: Slot,
    salt: str,
    config: OrchestratorConfig,
    prefix: str = "r",
) -> Sample:
    """Fill `sample` turn by turn. Raises EngineFailure, RolloutFailed."""
    policy = Conversation(sample, slot, salt, config, prefix)
    if isinstance(environment, DrivingEnvironment):
        try:
            sample.reward = float(await environment.play(task, policy))
        except RolloutFailed as error:
            raise policy.failure or error from None
        if policy.failure is not None:
            raise policy.failure
    else:
        sample.reward = float(await _alternate(task, environment, tokenizer, policy))
    if not math.isfinite(sample.reward):
        raise RolloutFailed(f"{environment.name}: a reward of {sample.reward}")
    return sample


async def _alternate(task: Task, environment: Environment, tokenizer: Tokenizer, policy: Conversation) -> float:
    """Turns of model and environment in words; answers the reward."""
    turns: list[str] = []
    said = task.prompt
    while len(turns) < policy.max_turns:
        try:
            turns.append(tokenizer.decode(await policy.turn(tokenizer.encode(said))))
        except NoRoom as error:
            if not turns:
                raise RolloutFailed(f"the prompt is too long: {error}") from error
            break
        reply = environment.respond(task, turns)
        if reply.done:
            break
        said = reply.text
    return environment.reward(task, turns)
