"""Waiting for the roles that a role needs, each with a deadline, and a message that names what is missing."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Literal

from prlc.runtime.ops.rendezvous import Rendezvous
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Endpoint, Gate, Role

# No proxy: the addresses are the cluster's own.
_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))
POLL = 0.5  # s
HEALTH_TIMEOUT = 5.0  # s


class GateTimeout(RuntimeError):
    """A gate's deadline passed; the message names every process that is not ready, and why."""


def health(url: str) -> str | None:
    """None where GET url answers 200, else what it answered or why it did not."""
    try:
        with _HTTP.open(url, timeout=HEALTH_TIMEOUT) as answer:
            return None if answer.status == 200 else f"answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"answers {error.code}"
    except (OSError, ValueError) as error:
        return f"no answer ({getattr(error, 'reason', error)})"


def taken(endpoint: Endpoint, meeting: Rendezvous) -> bool:
    """True where a process listens on the endpoint's port already: another run's, or one left behind."""
    try:
        socket.create_connection((meeting.address(endpoint.node), endpoint.port), HEALTH_TIMEOUT).close()
    except OSError:
        return False
    return True


def missing(role: Role, endpoint: Endpoint, meeting: Rendezvous, paths: RunPaths, attempt: int) -> str | None:
    """None where the process is ready, else what is missing, for people."""
    name = f"{role.name}-{endpoint.index}"
    if role.ready == "health":
        url = f"{meeting.endpoint_url(role.name, endpoint.index)}/health"
        problem = health(url)
        return None if problem is None else f"{name}: {url} {problem}"
    if role.ready == "file":
        path = paths.ready(attempt, role.name, endpoint.index)
        return None if path.exists() else f"{name}: no file {path}"
    return None


def wait_for(
    gate: Gate, meeting: Rendezvous, paths: RunPaths, attempt: int, interrupted: Callable[[], bool]
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
            problem = missing(role, endpoint, meeting, paths, attempt)
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
