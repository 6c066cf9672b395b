"""Whether a process serves: judged by its own agent, told to the others by a file."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import urllib.error
import urllib.request

from prlc.runtime.agent.listeners import holders, listens
from prlc.runtime.ops import token
from prlc.runtime.ops.files import write_atomic
from prlc.runtime.ops.rendezvous import Rendezvous
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Endpoint, Role

# No proxy: the addresses are the cluster's own.
_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ANSWER_TIMEOUT = 5.0  # s


def health(url: str, secret: str) -> str | None:
    """None where GET url with the run's token answers 200, else what it answered or why it did not."""
    try:
        with _HTTP.open(urllib.request.Request(url, headers=token.headers(secret)), timeout=ANSWER_TIMEOUT) as answer:
            return None if answer.status == 200 else f"answers {answer.status}"
    except urllib.error.HTTPError as error:
        return "refuses the run's token: another run's server" if error.code == 401 else f"answers {error.code}"
    except (OSError, ValueError) as error:
        return f"no answer ({getattr(error, 'reason', error)})"


def serves(role: Role, endpoint: Endpoint, meeting: Rendezvous, secret: str, session: int) -> bool:
    """True where the command in `session` serves: the listener is its own, and not another process on its port."""
    if role.ready not in ("health", "port") or not listens(session, endpoint.port):
        return False
    return role.ready == "port" or health(f"{_url(role, endpoint, meeting)}/health", secret) is None


def mark(role: Role, endpoint: Endpoint, paths: RunPaths, attempt: int, pid: int) -> None:
    """Say that the process serves. Raises OSError."""
    record = {"host": socket.gethostname(), "pid": pid, "port": endpoint.port, "time": round(time.time(), 3)}
    write_atomic(paths.ready(attempt, role.name, endpoint.index), json.dumps(record) + "\n")


def unmark(role: Role, endpoint: Endpoint, paths: RunPaths, attempt: int) -> None:
    """Take the word back when the process has ended; a file that the process wrote goes too. Raises OSError."""
    paths.ready(attempt, role.name, endpoint.index).unlink(missing_ok=True)


def missing(
    role: Role, endpoint: Endpoint, meeting: Rendezvous, paths: RunPaths, attempt: int, secret: str
) -> str | None:
    """None where another process may rely on this one, else what is missing, for people."""
    if role.ready == "none":
        return None
    name, path = f"{role.name}-{endpoint.index}", paths.ready(attempt, role.name, endpoint.index)
    if not path.exists():
        return f"{name}: not up yet, no file {path}"
    if role.ready != "health":
        return None
    url = f"{_url(role, endpoint, meeting)}/health"
    problem = health(url, secret)
    return None if problem is None else f"{name}: {url} {problem}"


def taken(endpoint: Endpoint, meeting: Rendezvous) -> str | None:
    """None where this process may bind the endpoint's port, else who holds it, for people."""
    address = meeting.address(endpoint.node)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no holder
        try:
            probe.bind((address, endpoint.port))
            probe.listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"{address}:{endpoint.port}: {os.strerror(error.errno or 0)}") from error
            found = ", ".join(str(holder) for holder in holders(endpoint.port))
            return f"{address}:{endpoint.port} is held by {found or 'a process of another user'}"
    return None


def _url(role: Role, endpoint: Endpoint, meeting: Rendezvous) -> str:
    return meeting.endpoint_url(role.name, endpoint.index)
