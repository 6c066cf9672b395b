"""GPUs: how many, how large, healthy and idle, and the driver, as nvidia-smi says."""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Iterator

from prlc.runtime.preflight.probe import Finding, Where

# names of `nvidia-smi --help-query-gpu`
FIELDS = ("index", "name", "driver_version", "memory.total", "memory.used", "ecc.errors.uncorrected.volatile.total")
MIB = 2**20
BUSY = 1024  # MiB in use before anything of the run has started: another process


def probe(where: Where) -> Iterator[Finding]:
    """Nothing on a CPU."""
    config = where.config
    if config.device != "cuda":
        return
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, timeout=config.probe_deadline, check=False,
    )  # fmt: skip
    if answer.returncode:
        yield Finding("gpus", f"nvidia-smi: {(answer.stderr or answer.stdout).strip()[:300]}")
        return
    rows = [dict(zip(FIELDS, (v.strip() for v in row), strict=True)) for row in csv.reader(io.StringIO(answer.stdout))]
    if len(rows) != config.gpus:
        yield Finding("gpus", f"{len(rows)} GPUs, {config.gpus} wanted")
    for row in rows:
        yield from _one(where, row)


def _one(where: Where, row: dict[str, str]) -> Iterator[Finding]:
    name, config = f"GPU {row['index']} ({row['name']})", where.config
    if int(row["memory.total"]) * MIB < config.gpu_memory:
        yield Finding("gpus", f"{name} has {row['memory.total']} MiB, {config.gpu_memory // MIB} wanted")
    if int(row["memory.used"]) > BUSY:
        yield Finding("gpus", f"{name} is in use: {row['memory.used']} MiB are taken")
    errors = row["ecc.errors.uncorrected.volatile.total"]
    if errors.isdigit() and int(errors):
        yield Finding("gpus", f"{name} has {errors} uncorrected memory errors since the driver was loaded")
    if config.driver and _version(row["driver_version"]) < _version(config.driver):
        yield Finding("gpus", f"driver {row['driver_version']}, {config.driver} or newer wanted")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
