"""The end of an attempt: `python -m prlc.runtime.agent.finish --status N` says the last line and what comes next.

Exit status: 0 the run is done; 75 (EX_TEMPFAIL) it stopped, its state is whole and another attempt goes on from there;
else the attempt's status, where another attempt would meet the same end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from prlc.runtime.agent.state import RunState
from prlc.runtime.ops.files import complete_numbers
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.preflight import report
from prlc.schema.codec import load
from prlc.schema.topology import Topology

AGAIN = os.EX_TEMPFAIL
STOPPED_BY_A_PERSON = {128 + signal.SIGINT, 128 + signal.SIGTERM}


def outcome(state: RunState, status: int) -> tuple[int, str]:
    """(exit status, last line) of an attempt whose first failed process ended with `status`."""
    if state.verdict() == "done":
        return 0, "done"
    if status and state.verdict() == "running" and (cause := report.cause(state.paths, state.attempt)):
        state.fail(cause)
    before, newest = _checkpoint_at_start(state), max(complete_numbers(state.paths.checkpoints), default=0)
    kept = f"the newest complete checkpoint is step {newest}" if newest else "there is no complete checkpoint"
    if state.verdict() == "failed":
        why = f"FAILED: {state.failure()}"
    elif status in STOPPED_BY_A_PERSON:
        return status, f"stopped by {signal.Signals(status - 128).name}; {kept}"
    else:
        why = f"stopped with status {status}"
    logs = state.paths.attempt(state.attempt) / "logs"
    if newest > before:
        return (
            AGAIN,
            f"{why}; {kept}, {newest - before} steps after this attempt's start: another attempt goes on there",
        )
    return status or 1, f"{why}; {kept}, as at this attempt's start: another attempt would meet the same; logs: {logs}"


def _checkpoint_at_start(state: RunState) -> int:
    try:
        return int(json.loads((state.paths.attempt(state.attempt) / "began.json").read_text("utf-8"))["checkpoint"])
    except (OSError, ValueError, KeyError):
        return 0


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="prlc.runtime.agent.finish", description=__doc__)
    parser.add_argument("--status", required=True, type=int, help="status of the first process that failed, or 0")
    arguments = parser.parse_args(argv)
    topology = load(Topology, Path(os.environ["PRLC_BUNDLE"]) / "config" / "topology.yaml")
    state = RunState(RunPaths(Path(os.environ["PRLC_RUN_DIR"])), topology, int(os.environ["PRLC_ATTEMPT"]))
    status, line = outcome(state, arguments.status)
    print(f"{topology.run}: attempt {state.attempt}: {line}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
