"""The emulated Slurm cluster of lab.sh, for tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).with_name("lab.sh")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


def unavailable() -> str | None:
    """Why no cluster can be started here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("slurmctld", "slurmd", "munged", "ip", "unshare") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else None


@dataclass(frozen=True)
class Cluster:
    """A running lab; `root` lies on the filesystem that its nodes share."""

    root: Path
    nodes: int
    settings: tuple[tuple[str, str], ...] = ()  # LAB_* of lab.sh

    def start(self) -> None:
        """Start it and wait until its nodes are idle. Raises CalledProcessError with what went wrong."""
        self._lab("start", str(self.nodes), timeout=180, environment={**os.environ, **dict(self.settings)})

    def stop(self) -> None:
        """End every daemon and job of it."""
        self._lab("stop", timeout=60)

    def run(self, *command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
        """Output of a command on the login host. Raises CalledProcessError."""
        given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **(environment or {})}
        return self._lab("run", *command, timeout=120, cwd=cwd, environment=given)

    def on(self, node: str, *command: str) -> str:
        """Output of a command on a node. Raises RuntimeError."""
        return self._lab("on", node, *command, timeout=120)

    def fault(self, what: str, *where: str) -> None:
        """crash, boot, unplug or plug a node; killctl, startctl."""
        self._lab(what, *where, timeout=60)

    def submit(self, folder: Path, environment: dict[str, str]) -> str:
        """Job id of `sbatch run.sbatch` inside a bundle."""
        return self.run("sbatch", "--parsable", "run.sbatch", cwd=folder, environment=environment).strip()

    def wait(self, job: str, deadline: float) -> str:
        """State in which a job ended. Raises TimeoutError after `deadline` seconds."""
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            shown = self.run("scontrol", "show", "job", job)
            state = re.search(r"JobState=(\w+)", shown)
            if state and state[1] in ENDED:
                return state[1]
            time.sleep(0.5)
        raise TimeoutError(f"job {job} has not ended after {deadline:g} s")

    def show(self, job: str, field: str) -> str:
        """A field of `scontrol show job`, '' where it has none."""
        found = re.search(rf"\b{field}=(\S+)", self.run("scontrol", "show", "job", job))
        return found[1] if found else ""

    def node_states(self) -> list[str]:
        """State of each node, once no job is completing."""
        for _ in range(100):
            states = self.run("sinfo", "-h", "-N", "-o", "%t").split()
            if "comp" not in states:
                break
            time.sleep(0.2)
        return states

    def _lab(
        self,
        command: str,
        *arguments: str,
        timeout: float,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> str:
        self.root.mkdir(parents=True, exist_ok=True)
        answer = subprocess.run(
            ["bash", str(LAB), command, str(self.root), *arguments],
            cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        if answer.returncode:
            raise RuntimeError(f"{command} {arguments}: {answer.returncode}\n{answer.stdout}{answer.stderr}")
        return answer.stdout
