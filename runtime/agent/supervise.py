"""The life of one process: gates, start, watch, restart, stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prlc.runtime.agent.child import Child, adopt_orphans
from prlc.runtime.agent.gates import GateTimeout, wait_for
from prlc.runtime.agent.ready import mark, serves, taken, unmark
from prlc.runtime.agent.state import RunState
from prlc.runtime.ops import token
from prlc.runtime.ops.events import Events
from prlc.runtime.ops.files import write_atomic
from prlc.runtime.ops.rendezvous import Rendezvous
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.topology import Role

POLL = 0.2  # s between looks at the command
STATE_POLL = 1.0  # s between looks at the run's files, which may lie on a network filesystem
HEARTBEAT = 30.0  # s between heartbeat events
RESTART_PAUSE = 2.0  # s between a death and what follows from it; longer than STATE_POLL
DONE_GRACE = 60.0  # s for done/<role> to be seen on this node after the role's process ended with status 0
PORT_WAIT = 30.0  # s for the process of an earlier attempt to leave the port
TAIL = 15  # lines of the log shown on failure


@dataclass
class Agent:
    """Supervises one process of a role. `run` returns the agent's exit status."""

    role: Role
    index: int
    command: Sequence[str]
    meeting: Rendezvous
    paths: RunPaths
    attempt: int
    secret: str = field(repr=False)
    _signals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.endpoint = self.meeting.endpoint(self.role.name, self.index)
        self.state = RunState(self.paths, self.meeting.topology, self.attempt)
        self.log = self.paths.log(self.attempt, self.role.name, self.index)
        # the process itself writes events/<role>-<index>; the agent's events have their own file and writer
        self.events = Events(self.paths.root, f"agent-{self.role.name}", self.index, self.attempt)
        self._looked, self._verdict, self._beat = 0.0, self.state.verdict(), time.monotonic()

    def run(self) -> int:
        """0: ended well or stopped by the run's own files; 1: failed; 128 + n: stopped by signal n."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _frame: self._signals.append(received))
        parent = os.getppid()
        signal.signal(
            signal.SIGUSR2, lambda *_: self._signals.append(signal.SIGTERM) if os.getppid() != parent else None
        )
        adopt_orphans()
        try:
            return self._run()
        except Exception as error:  # whatever it is, the others must learn that this process will not come
            return self._fail(f"{self._name}: agent: {type(error).__name__}: {error}")

    def _run(self) -> int:
        if self.role.finishes and self.state.role_done(self.role.name):
            self._say("already_done")
            return 0
        for gate in self.role.gates:
            self._say("waits", gate=gate.role, deadline=gate.deadline)
            try:
                answer = wait_for(gate, self.meeting, self.paths, self.attempt, self.secret, self._must_stop)
                if answer == "interrupted":
                    return self._stopped(None)
            except GateTimeout as error:
                return self._fail(f"{self._name} waited for {gate.role}: {error}")
        end = time.monotonic() + PORT_WAIT
        # Whoever listens there would answer for this process, and the run would drive another run's engine.
        while self.endpoint.port and (held := taken(self.endpoint, self.meeting)):
            if self._must_stop():
                return self._stopped(None)
            if time.monotonic() >= end:
                return self._fail(f"{self._name}: {held}; end it, or give one run another runtime.base_port")
            time.sleep(POLL)
        starts = 0
        while True:
            self._say("started", start=starts, log=str(self.log))
            try:
                child = Child(self.command, self.log, self._environment())
            except OSError as error:
                return self._fail(f"{self._name}: cannot start {self.command[0]}: {error}")
            status = self._watch(child)
            if status is None:
                return self._stopped(child)
            unmark(self.role, self.endpoint, self.paths, self.attempt)
            child.stop(grace=5.0)  # what the dead process left in its group
            if status == 0 and self.role.finishes:
                return self._finished()
            self._say("ended", status=status, start=starts)
            # Slurm signals command and agent alike, in any order: a stopped command is no failure
            if self._pause():
                return self._stopped(None)
            if starts >= self.role.restarts:
                what = f"{self._name} ended with status {status}"
                if self.role.restarts:
                    what += f" after {starts} restarts"
                return self._fail(what, status=status)
            starts += 1

    def _pause(self) -> bool:
        """True as soon as the agent must stop, False after RESTART_PAUSE."""
        end = time.monotonic() + RESTART_PAUSE
        while time.monotonic() < end:
            if self._must_stop():
                return True
            time.sleep(POLL)
        return False

    def _watch(self, child: Child) -> int | None:
        """Exit status of the command, or None when it must be stopped."""
        ready, asked = self.role.ready in ("none", "file"), 0.0
        while (status := child.status()) is None:
            if self._must_stop():
                return None
            if not ready and time.monotonic() - asked >= STATE_POLL:
                asked = time.monotonic()
                ready = serves(self.role, self.endpoint, self.meeting, self.secret, child.pid)
                if ready:
                    mark(self.role, self.endpoint, self.paths, self.attempt, child.pid)
                    self._say("ready")
            time.sleep(POLL)
        return status

    def _must_stop(self) -> bool:
        self._heartbeat()
        now = time.monotonic()
        if now - self._looked >= STATE_POLL:
            self._looked, self._verdict = now, self.state.verdict()
        if self._signals or self._verdict in ("failed", "superseded", "stopping"):
            return True
        # a finishing role ends by itself, when its work is done
        return self._verdict == "done" and not self.role.finishes

    def _heartbeat(self) -> None:
        if time.monotonic() - self._beat >= HEARTBEAT:
            self._beat = time.monotonic()
            self._emit("heartbeat")

    def _stopped(self, child: Child | None) -> int:
        first = len(self._signals)
        if self._signals:
            why, code = signal.Signals(self._signals[0]).name, 128 + self._signals[0]
        elif self._verdict == "done":
            why, code = "the run is done", 0
        elif self._verdict == "stopping":
            why, code = "the launcher stops the run", 0
        elif self._verdict == "superseded":
            why, code = "a newer attempt has begun", 1
        else:
            why, code = f"the run failed: {self.state.failure()}", 1
        self._say("stops", why=why)
        if child is not None:

            def again() -> bool:
                self._heartbeat()
                return len(self._signals) > max(first, 1)  # a second Ctrl-C means now

            child.stop(self.role.stop_grace, interrupted=again)
            unmark(self.role, self.endpoint, self.paths, self.attempt)
        self._say("stopped", why=why)
        return code

    def _finished(self) -> int:
        deadline = time.monotonic() + DONE_GRACE
        while not self.state.role_done(self.role.name):
            if self._signals or self.state.verdict() in ("failed", "superseded", "stopping"):
                return self._stopped(None)
            if time.monotonic() >= deadline:
                return self._fail(f"{self._name} ended with status 0 but did not write done/{self.role.name}")
            time.sleep(POLL)
        self._say("finished")
        return 0

    def _fail(self, cause: str, **fields: Any) -> int:
        try:
            tail = self.log.read_bytes()[-8192:].decode(errors="replace").splitlines()[-TAIL:]
        except OSError:
            tail = []
        print(f"{self._name}: FAILED: {cause}", file=sys.stderr, flush=True)
        if tail:
            print(
                "\n".join([f"  last lines of {self.log}:", *(f"  | {line}" for line in tail)]),
                file=sys.stderr,
            )
        self._emit("failed", cause=cause, **fields)
        if self._verdict != "superseded":
            try:
                self.state.fail(cause, role=self.role.name, index=self.index, log=str(self.log), **fields)
            except OSError as error:  # e.g. a full disk; the launcher ends the others by this exit status
                print(f"{self._name}: cannot write {self.paths.failed}: {error}", file=sys.stderr, flush=True)
        return 1

    def _emit(self, event: str, **fields: Any) -> None:
        try:
            self.events.emit(event, **fields)
        except OSError as error:  # a run does not end for want of its diary
            print(f"{self._name}: event {event} is not recorded: {error}", file=sys.stderr, flush=True)

    def _say(self, event: str, **fields: Any) -> None:
        self._emit(event, **fields)
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        print(f"{time.strftime('%H:%M:%S')} {self._name}: {event} {text}".rstrip(), flush=True)

    @property
    def _name(self) -> str:
        return f"{self.role.name}-{self.index}"

    def _environment(self) -> dict[str, str]:
        found = {**os.environ, "PRLC_ROLE": self.role.name, "PRLC_INDEX": str(self.index)}
        store = found.pop("PRLC_MOONCAKE_JSON", None)
        if store is not None:  # Mooncake reads a file, and its master's address is known only now
            path = self.paths.attempt(self.attempt) / f"mooncake-{self._name}.json"
            write_atomic(path, store)
            found["MOONCAKE_CONFIG_PATH"] = str(path)
        return found


def from_environment(role: str, index: int, command: Sequence[str]) -> Agent:
    """The agent of this process. Raises KeyError (not set), OSError, DocumentError, RendezvousError."""
    meeting = Rendezvous.from_environment()
    paths, attempt = RunPaths(Path(os.environ["PRLC_RUN_DIR"])), int(os.environ["PRLC_ATTEMPT"])
    meeting.endpoint(role, index)
    return Agent(
        role=meeting.role(role),
        index=index,
        command=command,
        meeting=meeting,
        paths=paths,
        attempt=attempt,
        secret=token.read(paths.token(attempt)),
    )
