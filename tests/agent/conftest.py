"""A run folder with a topology of two or three roles, and agents around tiny Python commands."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prlc.runtime.ops import token
from prlc.schema.codec import dump
from prlc.schema.topology import Role, Topology

LIMIT = 60  # s; a guard against a hang, never a measure


@dataclass
class Run:
    """One run folder and the agents that were started on it."""

    root: Path
    agents: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def dir(self) -> Path:
        return self.root / "run"

    def attempt(self, number: int) -> None:
        folder = self.dir / "attempts" / str(number)
        folder.mkdir(parents=True)
        (folder / "nodes").write_text("127.0.0.1\n")
        (folder / "ready").mkdir()
        token.make(folder / "token")
        latest = self.dir / "attempts" / "latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(str(number))

    def environment(self, attempt: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PRLC_BUNDLE": str(self.root / "bundle"),
            "PRLC_RUN_DIR": str(self.dir),
            "PRLC_ATTEMPT": str(attempt),
            "PRLC_NODES_FILE": str(self.dir / "attempts" / str(attempt) / "nodes"),
        }

    def start(
        self, role: str, code: str, index: int = 0, attempt: int = 1, program: str = sys.executable
    ) -> subprocess.Popen[str]:
        agent = subprocess.Popen(
            [sys.executable, "-m", "prlc.runtime.agent", "--role", role, "--index", str(index), "--",
             program, "-uc", code],
            env=self.environment(attempt), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.agents.append(agent)
        return agent

    def launch(self, role: str, code: str) -> subprocess.Popen[str]:
        """A shell that starts an agent and waits for it."""
        agent = [sys.executable, "-m", "prlc.runtime.agent", "--role", role, "--index", "0", "--", sys.executable]
        script = shlex.join([*agent, "-uc", code]) + " & wait"
        return subprocess.Popen(["bash", "-c", script], env=self.environment(1), text=True)

    def log(self, name: str, attempt: int = 1) -> str:
        return (self.dir / "attempts" / str(attempt) / "logs" / f"{name}.log").read_text()


def ended(agent: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and output of an agent that is about to end."""
    output, _ = agent.communicate(timeout=LIMIT)
    return agent.returncode, output


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(*roles: Role) -> Run:
        topology = Topology(run="test", nodes=1, roles=roles)
        (tmp_path / "bundle" / "config").mkdir(parents=True)
        (tmp_path / "bundle" / "config" / "topology.yaml").write_text(dump(topology))
        made.append(Run(tmp_path))
        made[0].attempt(1)
        return made[0]

    yield make
    for one in made:
        for agent in one.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()
