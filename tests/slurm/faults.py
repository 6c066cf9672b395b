"""The fault matrix: each case does something to a running job of stand-ins and says what came of it.

`python -m tests.slurm.faults CASE...` runs cases; without one it lists them; `--write FILE` runs all and writes the
table of docs/fault-matrix.md. Every case checks: the job ends, all nodes are free, no process is left, and what was
trained is each rollout once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prlc.compiler.bundle.emit import build, write

from tests.slurm.cluster import ENDED, Cluster, unavailable
from tests.slurm.miniature import EXPECTED, PROGRAM, VENV, miniature, steps, trained

LIMIT = 150.0  # s; a guard against a hang
FREE = 30.0  # s in which an ended run gives its nodes back
# a node that is gone is DOWN after about 8 s
SETTINGS = (("LAB_CONF", "SlurmdTimeout=8\nKillWait=10"),)


@dataclass
class Case:
    """One job on the lab. Paths lie below `folder`, which all nodes share."""

    cluster: Cluster
    folder: Path

    def submit(self, name: str = "mini", base: int = 23000, **more: object) -> str:
        """Build and submit a miniature; its job id."""
        bundle = self.folder / name
        if not bundle.exists():
            write(build(miniature(name=name, base=base, **more)), bundle)  # type: ignore[arg-type]
        return self.cluster.submit(bundle, {"PRLC_VENV": VENV, "PRLC_RUN_DIR": str(self.run(name))})

    def run(self, name: str = "mini") -> Path:
        return self.folder / f"{name}-run"

    def until(self, what: Callable[[], object], why: str, limit: float = LIMIT) -> float:
        """Seconds until it is so. Raises AssertionError with the logs."""
        began = time.monotonic()
        while time.monotonic() - began < limit:
            try:
                if what():
                    return time.monotonic() - began
            except (OSError, ValueError, json.JSONDecodeError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"not in {limit:g} s: {why}\n{self.said()}")

    def training(self, count: int = 5, name: str = "mini") -> None:
        """Wait until that many steps are trained."""
        self.until(lambda: steps(self.run(name)) >= count, f"{count} steps")

    def said(self) -> str:
        """Tails of the job's output and logs."""
        texts = []
        for path in sorted((*self.folder.glob("*/*.out"), *self.folder.glob("*-run/attempts/*/logs/*.log"))):
            texts.append(f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-12:]))
        return "\n".join(texts)

    def output(self, job: str, name: str = "mini") -> str:
        return (self.folder / name / f"{name}-{job}.out").read_text(errors="replace")

    def ends(self, job: str, state: str, name: str = "mini") -> float:
        """The job ends in that state, its nodes are free and nothing of it is left; seconds to the free nodes."""
        self.until(lambda: self.cluster.show(job, "JobState") in ENDED, f"job {job} ends")
        found = self.cluster.show(job, "JobState")
        assert found == state, f"{found}, not {state}\n{self.said()}"
        down = [s for s in self.cluster.run("sinfo", "-h", "-N", "-o", "%t").split() if s.startswith("down")]
        took = self.until(
            lambda: self.cluster.run("sinfo", "-h", "-N", "-o", "%t").split().count("idle") + len(down) == 3,
            "nodes are free", FREE,
        )  # fmt: skip
        self.until(lambda: not self.left(name), "no process is left", 15)
        return took

    def left(self, name: str) -> list[str]:
        """Processes of the run that still live, on any node."""
        wanted, found = f"PRLC_RUN_DIR={self.run(name)}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in environ.read_bytes().split(b"\0"):
                    found.append(environ.parent.name)
            except OSError:
                continue
        return found

    def whole(self, name: str = "mini") -> None:
        """Each rollout was trained once, in order."""
        assert trained(self.run(name)) == EXPECTED, trained(self.run(name))

    def attempts(self, name: str = "mini") -> int:
        return len([p for p in (self.run(name) / "attempts").glob("*") if p.name.isdigit()])

    def pids(self, pattern: str, name: str = "mini") -> list[int]:
        """Processes of the run whose command line has the pattern."""
        found = []
        for pid in self.left(name):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if re.search(pattern, line):
                found.append(int(pid))
        return found

    def kill(self, pattern: str, name: str = "mini") -> None:
        """kill -9 of the first process that matches."""
        subprocess.run(["kill", "-KILL", str(self.pids(pattern, name)[0])], check=True)


def engine_killed(it: Case) -> str:
    """kill -9 of an engine"""
    job = it.submit()
    it.training()
    it.kill(rf"^python -u {PROGRAM} engine")
    took = it.ends(job, "COMPLETED")
    it.whole()
    marks = (it.run() / "events").glob("agent-engine-*.jsonl")
    assert sum(path.read_text().count('"event":"started"') for path in marks) == 3
    assert it.attempts() == 1
    return f"restarted alone in the same attempt; the run ends well, nodes free after {took:.1f} s"


def trainer_killed(it: Case) -> str:
    """kill -9 of the trainer"""
    job = it.submit()
    it.training(9)
    it.kill(rf"^python -u {PROGRAM} trainer")
    took = it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    assert "trainer-0 ended with status 137" in it.output(job)
    return (
        f"FAILED names it, the job requeues, goes on from the last complete checkpoint; nodes free after {took:.1f} s"
    )


def orchestrator_killed(it: Case) -> str:
    """kill -9 of the orchestrator"""
    job = it.submit()
    it.training(9)
    it.kill(rf"^python -u {PROGRAM} orchestrator")
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    return "as for the trainer; no rollout lost or doubled"


def agent_killed(it: Case) -> str:
    """kill -9 of a node agent"""
    job = it.submit()
    it.training(9)
    it.kill(r"prlc.runtime.agent --role engine")
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    return "its process ends with it, the step fails, the job requeues and goes on"


def early_failure(it: Case) -> str:
    """kill -9 of the trainer before its first checkpoint"""
    job = it.submit()
    it.training(1)
    it.kill(rf"^python -u {PROGRAM} trainer")
    it.ends(job, "FAILED")
    assert it.attempts() == 1
    assert "another attempt would meet the same" in it.output(job).splitlines()[-1]
    return "ends as FAILED and is not requeued: another attempt would meet the same"


def second_submit(it: Case) -> str:
    """a second submit of the same bundle while one runs"""
    job = it.submit()
    it.training(1)
    # on one lab the first job has all nodes but not all CPUs, so the second starts beside it
    second = it.submit()
    it.until(lambda: it.cluster.show(second, "JobState") in ENDED, "the second ends")
    assert it.cluster.show(second, "JobState") == "FAILED"
    assert f"job {job} (RUNNING) runs {it.run()} already, as attempt 1" in it.output(second)
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 1
    return "the second ends at once and names the job that has the run; the first is not disturbed"


def two_runs(it: Case) -> str:
    """two runs of one user at once on the same nodes"""
    one, two = it.submit("mini", 23000), it.submit("other", 23256)
    it.ends(one, "COMPLETED")
    it.ends(two, "COMPLETED", "other")
    it.whole()
    it.whole("other")
    return "both end well, each with its own ports and token"


def same_ports(it: Case) -> str:
    """two runs whose ports were set to the same by hand"""
    one = it.submit("mini", 23000)
    it.training(1)
    two = it.submit("other", 23000)
    it.ends(two, "FAILED", "other")
    line = it.output(two, "other").splitlines()[-1]
    assert re.search(r"node 0 \(n01\): ports: 10.77.1.1:23001 .engine-0 http. is held by process \d+ of root", line), (
        line
    )
    assert f"of the run in {it.run()}" in line
    it.ends(one, "COMPLETED")
    it.whole()
    return "preflight of the second names port, process and run of the holder; the first is not disturbed"


def cancelled(it: Case) -> str:
    """scancel, then sbatch again"""
    job = it.submit()
    it.training(6)
    it.cluster.run("scancel", job)
    took = it.ends(job, "CANCELLED")
    assert not (it.run() / "FAILED").exists()
    again = it.submit()
    it.ends(again, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    return f"saves and stops, nodes free after {took:.1f} s; the next submit goes on"


def time_limit(it: Case) -> str:
    """USR1 before the time limit"""
    job = it.submit()
    it.training(6)
    it.cluster.run("scancel", "--batch", "--signal=USR1", job)  # what --signal=B:USR1@... makes slurmctld send
    it.until(lambda: it.attempts() == 2, "the job is requeued")
    it.ends(job, "COMPLETED")
    it.whole()
    assert "saved" in (it.run() / "attempts/1/logs/trainer-0.log").read_text()
    return "the trainer saves the step it is at, the job requeues and goes on from there"


def preempted(it: Case) -> str:
    """preemption: scontrol requeue of the running job"""
    job = it.submit()
    it.training(6)
    it.cluster.run("scontrol", "requeue", job)
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    return "the same job goes on as attempt 2"


def controller_restarted(it: Case) -> str:
    """slurmctld ends and starts again"""
    job = it.submit()
    it.training(3)
    it.cluster.fault("killctl")
    time.sleep(3)
    it.cluster.fault("startctl")
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 1
    return "the run does not notice"


def engine_node_crashed(it: Case) -> str:
    """power loss of an engine's node"""
    return _node_crashed(it, "n02")


def trainer_node_crashed(it: Case) -> str:
    """power loss of the trainer's node"""
    return _node_crashed(it, "n03")


def head_node_crashed(it: Case) -> str:
    """power loss of the head node, where the batch script runs"""
    return _node_crashed(it, "n01")


def _node_crashed(it: Case, node: str) -> str:
    job = it.submit(seconds=0.8)  # longer than Slurm takes to miss a node
    it.training(6)
    it.cluster.fault("crash", node)
    seen = it.until(lambda: it.cluster.show(job, "JobState") != "RUNNING", "Slurm sees it")
    it.cluster.fault("boot", node)
    it.ends(job, "COMPLETED")
    it.whole()
    if it.attempts() == 1:
        assert "has ended well: nothing to do" in it.output(job)
        return f"the run ends well without it; the job that Slurm requeues after {seen:.0f} s finds nothing to do"
    return f"Slurm requeues the job after {seen:.0f} s; back with its node it goes on from the last complete checkpoint"


def step_daemon_killed(it: Case) -> str:
    """kill -9 of slurmstepd and its processes: srun alone would wait for ever"""
    job = it.submit()
    it.training(9)
    pid = it.pids(r"prlc.runtime.agent --role engine --index 0")[0]
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    subprocess.run(["kill", "-KILL", str(parent)], check=True)
    it.ends(job, "COMPLETED")
    it.whole()
    return f"the run goes on with the other engine or requeues ({it.attempts()} attempts); the step left over is ended"


def network_cut(it: Case) -> str:
    """the network of an engine's node is cut"""
    job = it.submit(seconds=0.8)
    it.training(6)
    it.cluster.fault("unplug", "n02")
    it.until(lambda: it.cluster.show(job, "JobState") != "RUNNING", "Slurm sees it")
    it.cluster.fault("plug", "n02")
    it.cluster.run("scontrol", "update", "NodeName=n02", "State=RESUME")
    it.ends(job, "COMPLETED")
    it.whole()
    assert it.attempts() == 2
    return "Slurm requeues the job; what lived on behind the cut stops itself when it sees the newer attempt"


def disk_full(it: Case) -> str:
    """no space left in the run's folder"""
    job = it.submit()
    it.training(6)
    with contextlib.suppress(OSError):
        (it.run() / "filler").write_bytes(bytes(SMALL_DISK))
    it.ends(job, "FAILED")
    assert "No space left on device" in it.output(job), it.output(job)
    (it.run() / "filler").unlink()
    again = it.submit()
    it.ends(again, "COMPLETED")
    it.whole()
    return "the job ends with 'No space left on device'; with space again the next submit goes on, nothing lost"


def launcher_killed(it: Case) -> str:
    """kill -9 of the batch script"""
    job = it.submit()
    it.training(6)
    it.kill(r"^/bin/bash .*slurm_script")
    took = it.ends(job, "FAILED")
    again = it.submit()
    it.ends(again, "COMPLETED")
    it.whole()
    return f"Slurm ends the steps, nodes free after {took:.1f} s; the next submit goes on"


def soak(it: Case) -> str:
    """random kill -9 of engines, trainer, orchestrator and agents, again and again"""
    dice, faults, jobs, runs, finished = random.Random(SOAK_SEED), 0, 0, 0, True
    job = name = ""
    end = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < end or not finished:
        state = it.cluster.show(job, "JobState") if job else ""
        if finished:
            runs += 1
            name, finished, state = f"soak{runs}", False, ""
        if state in ("", *ENDED):
            if state == "COMPLETED":
                it.until(lambda which=name: not it.left(which), "no process is left", 15)  # type: ignore[misc]
                it.whole(name)
                finished = True
                continue
            jobs += 1
            job = it.submit(name, 23000, seconds=0.4)
        time.sleep(dice.uniform(0.5, 6.0))
        victims = it.pids(rf"^python -u {PROGRAM}|prlc.runtime.agent --role", name)
        if victims and time.monotonic() < end:
            faults += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(victims), signal.SIGKILL)
    return f"{faults} faults in {runs} runs and {jobs} jobs: each run ends with every rollout trained once"


HEAD = """# Fault matrix

What was done to running jobs, and what came of it: seen on {slurm}, on an emulated cluster of three nodes
(namespaces on one machine, real daemons), with stand-ins for engine, orchestrator and trainer under the real
launcher, agents, preflight and watchdog. The stand-in trainer keeps what it has trained in its checkpoints, so
each case ends with the check that every rollout was trained once, that all nodes are free and that no process of
the run is left.

Repeat one with `python -m tests.slurm.faults CASE`, all with `python -m tests.slurm.faults --write
docs/fault-matrix.md`, which writes this page (root, slurmctld, slurmd and munge). The quick ones belong to the
test suite. On a node that is gone Slurm's own patience (SlurmdTimeout, 8 s here, 300 s by default) comes on top.

The real runtime of the tiny model on the same cluster loses its engine to kill -9 in
`tests/slurm/test_tiny_bundle.py`: it is restarted alone, rejoins, and the run ends. On one machine (2026-11-30, ten
steps, a checkpoint every two) a trainer rank and then the orchestrator were killed with -9: both attempts ended with
status 75, the run went on from steps 2 and 6 and ended in the third; of 848 rollouts generated 640 were trained and
208 dropped, 128 of them as lost on restart.

| case | what happens | what was seen | s |
| --- | --- | --- | --- |
"""
CASES: dict[str, Callable[[Case], str]] = {
    "engine-killed": engine_killed,
    "trainer-killed": trainer_killed,
    "orchestrator-killed": orchestrator_killed,
    "agent-killed": agent_killed,
    "early-failure": early_failure,
    "second-submit": second_submit,
    "two-runs": two_runs,
    "same-ports": same_ports,
    "cancelled": cancelled,
    "time-limit": time_limit,
    "preempted": preempted,
    "controller-restarted": controller_restarted,
    "engine-node-crashed": engine_node_crashed,
    "trainer-node-crashed": trainer_node_crashed,
    "head-node-crashed": head_node_crashed,
    "step-daemon-killed": step_daemon_killed,
    "network-cut": network_cut,
    "disk-full": disk_full,
    "launcher-killed": launcher_killed,
    "soak": soak,
}
SOAK_SEED, SOAK_SECONDS = 1, 300.0
SMALL_DISK = 2**20  # bytes of the run's folder where it is a filesystem of its own


@contextlib.contextmanager
def lab_for(name: str, root: Path) -> Iterator[Case]:
    """A lab of three nodes for one case; for disk-full the run's folder is a small filesystem that all nodes see."""
    folder, cluster = root / name, Cluster(root / f"lab-{name}", 3, SETTINGS)
    run = folder / "mini-run"
    run.mkdir(parents=True)
    small = name == "disk-full"
    if small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(run)], check=True)
    try:
        cluster.start()
        yield Case(cluster, folder)
    finally:
        cluster.stop()
        if small:
            subprocess.run(["umount", str(run)], check=True)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="tests.slurm.faults", description=__doc__)
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="cases to run")
    parser.add_argument("--write", type=Path, help="run all cases and write the table to this file")
    arguments = parser.parse_args(argv)
    if why := unavailable():
        print(f"no Slurm here: {why}", file=sys.stderr)
        return 2
    names = list(CASES) if arguments.write else arguments.case
    if not names:
        print("\n".join(f"{name:22} {function.__doc__}" for name, function in CASES.items()))
        return 0
    root = Path(tempfile.mkdtemp(prefix="prlc-faults-"))
    failed, rows = 0, []
    try:
        for name in names:
            began = time.monotonic()
            try:
                with lab_for(name, root) as case:
                    seen = CASES[name](case)
                seconds = time.monotonic() - began
                rows.append(f"| {name} | {CASES[name].__doc__} | {seen} | {seconds:.0f} |")
                print(f"{name}: {seen} ({seconds:.0f} s)", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: NOT as it should be: {error}", flush=True)
    finally:
        if not failed:
            shutil.rmtree(root, ignore_errors=True)
    if arguments.write and not failed:
        version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.strip()
        arguments.write.write_text(HEAD.format(slurm=version) + "\n".join(rows) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
