"""The cause that is told at the end names every node, and the ranks where the nodes are well."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from prlc.runtime.preflight import report
from prlc.runtime.preflight.probe import Where
from prlc.schema.codec import dump

from tests.agent.conftest import free_port

Make = Callable[..., Where]
THREE = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def test_every_failing_and_every_silent_node_is_named(where: Make) -> None:
    it = where(0, THREE)
    folder = it.paths.preflight(1)
    assert report.cause(it.paths, 1) is None, "no report: the attempt did not come to preflight"
    report.write(folder, "node", 0, host="n01", problems=[], warnings=["clock: odd"])
    report.write(folder, "node", 1, host="n02", problems=["gpus: 7 GPUs, 8 wanted", "nics: no NIC x"], warnings=[])
    assert report.cause(it.paths, 1) == (
        "preflight: node 1 (n02): gpus: 7 GPUs, 8 wanted; nics: no NIC x | node 2 (10.0.0.3): no answer"
    )


def test_ranks_speak_where_the_nodes_are_well(where: Make) -> None:
    it = where(0, THREE[:1])
    folder = it.paths.preflight(1)
    report.write(folder, "node", 0, host="n01", problems=[], warnings=[])
    assert report.cause(it.paths, 1) is None
    report.write(folder, "rank", 0, host="n01", stage="across nodes", error="", seconds={})
    report.write(folder, "rank", 9, host="n02", stage="all-reduce across nodes", error="timed out", seconds={})
    assert report.cause(it.paths, 1) == "preflight: n02 rank 9: all-reduce across nodes: timed out"


@pytest.mark.runtime
def test_collectives_of_two_ranks_pass_and_say_their_times(where: Make) -> None:
    it = where(collective_port=1, collective_ranks=2)
    bundle = it.paths.root / "bundle/config"
    bundle.mkdir(parents=True)
    (bundle / "preflight.yaml").write_text(dump(it.config))
    answer = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2",
            "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m", "prlc.runtime.preflight.collectives",
        ],
        env={
            "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PRLC_BUNDLE": str(bundle.parent), "PRLC_ATTEMPT": "1",
            "PRLC_RUN_DIR": str(it.paths.root),
        },
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    for stage in ("all-reduce inside the node", "all-to-all inside the node", "all-reduce across nodes"):
        assert stage in answer.stdout
    assert len(list(it.paths.preflight(1).glob("rank-*.json"))) == 2
