"""What the orchestrator needs of an engine, and which engine a group goes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class EngineFailure(RuntimeError):
    """An engine did not answer, or answered what cannot be used."""


@dataclass(frozen=True)
class Turn:
    """What an engine generated. `routed` holds `routed_rows` rows of bytes, from the row asked for."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    routed: bytes = b""
    routed_rows: int = 0


class Engine(Protocol):
    """One engine. Every call raises EngineFailure, and within the deadlines of its maker."""

    name: str

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
        """Continue `tokens` to an end token or one of `stop_token_ids`, which is part of the turn.

        With `routed_start` also expert rows from that position.
        """
        ...

    async def abort(self, request_ids: list[str]) -> None:
        """End those of the requests that are in flight, under whatever id the engine knows them."""
        ...

    async def pause(self) -> None:
        """Stop stepping; requests and their KV are kept."""
        ...

    async def load(self, version: int, folder: Path) -> None:
        """Load a policy version; the engine is paused."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...


@dataclass
class Slot:
    """An engine as the orchestrator sees it; without `healthy` it gets no traffic."""

    engine: Engine
    version: int = 0
    healthy: bool = True
    groups: int = 0


def least_loaded(slots: list[Slot]) -> Slot | None:
    """The healthy engine with the newest weights and then the fewest groups; None if all are down."""
    healthy = [slot for slot in slots if slot.healthy]
    return min(healthy, key=lambda slot: (-slot.version, slot.groups), default=None)
