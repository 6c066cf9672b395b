"""Weight updates: pause all, load on each, resume all; a failing one gets no traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from prlc.runtime.orchestrator.engines import EngineFailure, Slot


async def update_engines(
    slots: list[Slot], version: int, folder: Path, deadline: float, failed: Callable[[str], None]
) -> None:
    """Bring engines to `version`. `deadline` in seconds for each call; never raises for an engine's failure.

    An engine that fails in one phase is left out of the next and is tried again by the next call.
    """

    async def phase(members: list[Slot], name: str, call: Callable[[Slot], Awaitable[None]]) -> list[Slot]:
        async def one(slot: Slot) -> bool:
            try:
                await asyncio.wait_for(call(slot), deadline)
            except (EngineFailure, TimeoutError) as error:
                slot.healthy = False
                failed(f"{slot.engine.name}: {name} for version {version}: {error or 'deadline passed'}")
                return False
            return True

        kept = await asyncio.gather(*(one(slot) for slot in members))
        return [slot for slot, good in zip(members, kept, strict=True) if good]

    paused = await phase(slots, "pause", lambda slot: slot.engine.pause())
    loaded = await phase(paused, "load", lambda slot: slot.engine.load(version, folder))
    for slot in await phase(loaded, "resume", lambda slot: slot.engine.resume()):
        slot.version, slot.healthy = version, True
