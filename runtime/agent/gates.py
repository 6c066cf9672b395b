"""Waiting for the roles that a role needs, each with a deadline, and a message that names what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from prlc.runtime.agent.ready import missing
from prlc.runtime.ops.rendezvous import Rendezvous
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Gate

POLL = 0.5  # s


class GateTimeout(RuntimeError):
    """A gate's deadline passed; the message names every process that is not ready, and why."""


def wait_for(
    gate: Gate, meeting: Rendezvous, paths: RunPaths, attempt: int, secret: str, interrupted: Callable[[], bool]
) -> Literal["ready", "interrupted"]:
    """Wait until every process of the gate's role is ready. Raises GateTimeout, RendezvousError."""
    role = meeting.role(gate.role)
    waiting = list(role.endpoints)
    deadline = time.monotonic() + gate.deadline
    while True:
        problems = []
        for endpoint in list(waiting):
            if interrupted():
                return "interrupted"
            problem = missing(role, endpoint, meeting, paths, attempt, secret)
            if problem is None:
                waiting.remove(endpoint)  # once ready is ready: a later death is its own agent's business
            else:
                problems.append((endpoint, problem))
        if not waiting:
            return "ready"
        if time.monotonic() >= deadline:
            logs = ", ".join(str(paths.log(attempt, role.name, e.index)) for e, _ in problems[:3])
            raise GateTimeout(
                f"{len(problems)} of {len(role.endpoints)} {role.name} processes not ready after "
                f"{gate.deadline:g} s: {'; '.join(text for _, text in problems)}; see {logs}"
            )
        time.sleep(min(POLL, max(0.0, deadline - time.monotonic())))
