"""The launcher's watchdog: `python -m prlc.runtime.agent.watch PID...` beside the processes that started the roles.

A launcher waits for its steps, and two things keep a step from ending for ever: an agent that was killed together
with Slurm's own step process, and a node that is cut off. So this process looks for signs of life of every agent
(each writes an event at least every 30 s) and says FAILED for one that gives none; and when the run is done or has
failed and a step is still there long after every process should have ended, it kills the step's client.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from prlc.runtime.agent.child import die_with_parent
from prlc.runtime.agent.state import RunState
from prlc.runtime.ops.run_paths import RunPaths
from prlc.schema.codec import load
from prlc.schema.topology import Topology

POLL = 5.0  # s
LOST = 180.0  # s without an event of an agent: six of its heartbeats
SLACK = 20.0  # s beyond the longest stop_grace until a step that has not ended is ended


@dataclass
class Watch:
    """What is known of each agent. `look` is called with a clock in seconds."""

    state: RunState
    lost_after: float = LOST
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)  # size of its events file, when it changed

    def lost(self, now: float) -> list[str]:
        """Agents that have given no sign of life for too long and have not ended; by name."""
        found = []
        for role in self.state.topology.roles:
            for endpoint in role.endpoints:
                name = f"{role.name}-{endpoint.index}"
                path = self.state.paths.events(f"agent-{role.name}", endpoint.index)
                size = path.stat().st_size if path.exists() else 0
                if name not in self._seen or self._seen[name][0] != size:
                    self._seen[name] = (size, now)
                elif now - self._seen[name][1] > self.lost_after and not _ended(path):
                    found.append(name)
        return found


def _ended(path: Path) -> bool:
    """True where an agent's last event says that it is gone."""
    if not path.exists():
        return False
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    return any(f'"event":"{name}"'.encode() in last for name in ("stopped", "finished", "failed", "already_done"))


def run(state: RunState, pids: list[int], lost_after: float = LOST, slack: float = SLACK) -> None:
    """Watch until every process of `pids` is gone."""
    watch = Watch(state, lost_after)
    over: float | None = None
    roles = state.topology.roles
    while left := [pid for pid in pids if _lives(pid)]:
        now, verdict = time.monotonic(), state.verdict()
        # of a run that is done only the services are still there
        grace = slack + max((r.stop_grace for r in roles if not (verdict == "done" and r.finishes)), default=0.0)
        if verdict == "running":
            if lost := watch.lost(now):
                names = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
                cause = f"no sign of life of {names} for {lost_after:g} s: the process, its node or its network is gone"
                print(f"watch: {cause}", file=sys.stderr, flush=True)
                with contextlib.suppress(OSError):  # a full disk; said again at the next look
                    state.fail(cause, lost=lost)
        elif over is None:
            over = now
        elif now - over > grace:
            print(f"watch: a step has not ended {grace:g} s after the run: ended", file=sys.stderr, flush=True)
            late = now - over > grace + slack
            for pid in left:  # srun ends its whole step by TERM; by KILL it leaves that to the job's end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(min(POLL, lost_after / 4))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="prlc.runtime.agent.watch", description=__doc__)
    parser.add_argument("pids", nargs="+", type=int)
    parser.add_argument("--lost-after", type=float, default=LOST, help="seconds without a sign of life")
    parser.add_argument("--slack", type=float, default=SLACK, help="seconds beyond the longest grace")
    arguments = parser.parse_args(argv)
    die_with_parent()
    paths = RunPaths(Path(os.environ["PRLC_RUN_DIR"]))
    topology = load(Topology, Path(os.environ["PRLC_BUNDLE"]) / "config" / "topology.yaml")
    run(
        RunState(paths, topology, int(os.environ["PRLC_ATTEMPT"])),
        arguments.pids,
        arguments.lost_after,
        arguments.slack,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
