"""What the orchestrator keeps for its next life.

State k is written just before batch k appears, so that a complete batch always has its state; a state whose
batch never appeared is not used.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from prlc.runtime.ops.files import complete_numbers, write_atomic
from prlc.runtime.ops.run_paths import RunPaths


@dataclass(frozen=True)
class State:
    """State right after batch `step`; `cursor` is the next training task."""

    step: int
    cursor: int
    counters: dict[str, Any]


def save(paths: RunPaths, state: State) -> None:
    """Write the state. Raises OSError."""
    paths.orchestrator_states.mkdir(parents=True, exist_ok=True)
    write_atomic(paths.orchestrator_state(state.step), json.dumps(asdict(state)))


def newest(paths: RunPaths) -> State | None:
    """State of the newest shipped batch, which is never removed; None before the first. Raises OSError, ValueError."""
    shipped = list(complete_numbers(paths.batches))
    if not shipped:
        return None
    return State(**json.loads(paths.orchestrator_state(shipped[-1]).read_text("utf-8")))
