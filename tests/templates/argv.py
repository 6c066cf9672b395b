"""The command line that a role script really hands to the node agent, as bash expands it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# Stands in for python: says its arguments and its environment, one NUL-ended word each.
RECORDER = '#!/bin/bash\nprintf "%s\\0" "$@"\nprintf "\\0"\nenv -0\n'


def argv(script: Path, index: int, nodes: tuple[str, ...], folder: Path) -> tuple[list[str], dict[str, str]]:
    """(command after the agent's --, environment) of a role's process."""
    folder.mkdir(parents=True, exist_ok=True)
    recorder = folder / "python"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    (folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
    said = subprocess.run(
        ["bash", str(script), str(index)],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PRLC_NODES_FILE": str(folder / "nodes"),
            "PRLC_BUNDLE": "/bundle",
            "PRLC_RUN_DIR": "/run-dir",
        },
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    words, _, environment = said.partition("\0\0")
    arguments = words.split("\0")
    pairs = (pair.partition("=")[::2] for pair in environment.split("\0") if "=" in pair)
    return arguments[arguments.index("--") + 1 :], dict(pairs)
