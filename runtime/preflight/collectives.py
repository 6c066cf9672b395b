"""`torchrun ... -m prlc.runtime.preflight.collectives`: do all ranks reach each other, inside a node and across?

All-reduce and all-to-all, first among the ranks of a node, then among all; the sums are checked. NCCL on GPUs, gloo
on CPUs. Each collective has a deadline, and a rank's report says how far it came.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.preflight import report
from prlc.schema.codec import load
from prlc.schema.preflight import PreflightConfig

ELEMENTS = {"cpu": 2**16, "cuda": 2**24}  # float32 of one rank


def all_reduce(group: Any, device: str) -> float:
    """Seconds of a checked all-reduce. Raises RuntimeError for a wrong sum."""
    size = dist.get_world_size(group)
    data = torch.full((ELEMENTS[device],), float(dist.get_rank(group) + 1), device=device)
    began = time.monotonic()
    dist.all_reduce(data, group=group)
    wrong = int((data != size * (size + 1) / 2).sum().item())
    if wrong:
        raise RuntimeError(f"{wrong} of {data.numel()} sums are wrong")
    return time.monotonic() - began


def all_to_all(group: Any, device: str) -> float:
    """Seconds of a checked all-to-all. Raises RuntimeError for data of another rank than planned."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    each = max(1, ELEMENTS[device] // size)
    sent = torch.full((size * each,), float(rank), device=device)
    got = torch.empty_like(sent)
    began = time.monotonic()
    dist.all_to_all_single(got, sent, group=group)
    wanted = torch.arange(size, device=device, dtype=torch.float32).repeat_interleave(each)
    if not torch.equal(got, wanted):
        raise RuntimeError("it delivered other ranks' data")
    return time.monotonic() - began


def main() -> int:
    """0 where every collective passed on this rank."""
    config = load(PreflightConfig, Path(os.environ["PRLC_BUNDLE"]) / "config" / "preflight.yaml")
    folder = RunPaths(Path(os.environ["PRLC_RUN_DIR"])).preflight(int(os.environ["PRLC_ATTEMPT"]))
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    times: dict[str, float] = {}
    stage = "start"

    def say(error: str = "") -> None:
        report.write(folder, "rank", rank, host=socket.gethostname(), stage=stage, error=error, seconds=times)

    try:
        if config.device == "cuda":
            torch.cuda.set_device(local)
        stage = "meeting"
        backend = "nccl" if config.device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=config.collective_deadline))
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        groups = [
            dist.new_group(list(range(first, first + per_node))) for first in range(0, dist.get_world_size(), per_node)
        ]
        for where, group in (("inside the node", groups[rank // per_node]), ("across nodes", dist.group.WORLD)):
            for collective in (all_reduce, all_to_all):
                stage = f"{collective.__name__.replace('_', '-')} {where}"
                collective(group, config.device)  # makes the connections
                times[stage] = round(collective(group, config.device), 6)
    except Exception as error:
        say(f"{type(error).__name__}: {str(error)[:300]}")
        print(f"preflight: rank {rank} on {socket.gethostname()}: {stage}: {error}", file=sys.stderr, flush=True)
        return 1
    say()
    if rank == 0:
        print(
            "preflight: collectives: " + ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
        )
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # NCCL's teardown may hang where a peer is gone
