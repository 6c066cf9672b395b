"""`python -m prlc.runtime.preflight [NODE]`: this node's probes. Exit status 1 where the run must not start here."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from prlc.runtime.ops.rendezvous import read_nodes
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.preflight import checkpoint, disk, gpus, memory, network, nics, report, versions
from prlc.runtime.preflight.probe import Finding, Probe, Where, run
from prlc.schema.codec import load
from prlc.schema.preflight import PreflightConfig


def probes(config: PreflightConfig) -> list[tuple[str, Probe, float]]:
    """(name, probe, deadline in s) of every probe."""
    each = config.probe_deadline
    return [
        ("names", network.names, each),
        ("ports", network.ports, each),
        ("gpus", gpus.probe, each),
        ("nics", nics.probe, each),
        ("versions", versions.probe, each),
        ("memory", memory.probe, each),
        ("limits", memory.limits, each),
        ("disk", disk.space, each),
        ("renames", disk.renames, each),
        ("shared", disk.shared, config.shared_deadline),
        ("clock", disk.clock, each),
        ("checkpoint", checkpoint.probe, config.shared_deadline),
    ]


def main(arguments: list[str]) -> int:
    """Command line: the node's index, else SLURM_PROCID."""
    began = time.monotonic()
    node = int(arguments[0] if arguments else os.environ["SLURM_PROCID"])
    config = load(PreflightConfig, Path(os.environ["PRLC_BUNDLE"]) / "config" / "preflight.yaml")
    where = Where(
        node=node,
        addresses=read_nodes(Path(os.environ["PRLC_NODES_FILE"])),
        attempt=int(os.environ["PRLC_ATTEMPT"]),
        paths=RunPaths(Path(os.environ["PRLC_RUN_DIR"])),
        config=config,
    )
    found = run(probes(config), where)
    host = socket.gethostname()
    for finding in found:
        print(f"preflight: node {node} ({host}): {finding.severity}: {finding.probe}: {finding.text}", flush=True)
    problems = _texts(found, "problem")
    report.write(
        where.paths.preflight(where.attempt), "node", node,
        host=host, seconds=round(time.monotonic() - began, 2), problems=problems, warnings=_texts(found, "warning"),
    )  # fmt: skip
    return 1 if problems else 0


def _texts(found: list[Finding], severity: str) -> list[str]:
    return [f"{finding.probe}: {finding.text}" for finding in found if finding.severity == severity]


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # a probe that hangs keeps its thread
