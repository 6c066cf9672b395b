"""What the place of a run tells by itself: Slurm's clients, nvidia-smi, the machine. Every question has a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, replace
from typing import TypedDict

from prlc.catalog import names
from prlc.compiler.starter import slurm
from prlc.compiler.starter.cluster import catalog_gpu

DEADLINE = 20.0  # s, of each question
SMI = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


class UnknownPartition(LookupError):
    """Slurm has no such partition that is up; the message names those that it has."""


class Size(TypedDict):
    """Of this machine: cores, and bytes of memory."""

    cpus: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What was read of the place that the run will have. `notes`: what was read and what was not, in words."""

    nodes: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    cpus: int | None = None
    memory: int | None = None
    scratch: int | None = None
    slurm: bool = False
    partition: str | None = None
    time_limit: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()


def ask(*command: str) -> tuple[str, str]:
    """(output, '') of a program, or ('', why there is none). Waits DEADLINE seconds at most."""
    try:
        asked = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError:
        return "", f"{command[0]} is not on this machine"
    with asked:
        try:
            shown, wrong = asked.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(asked.pid, signal.SIGKILL)  # its children too: a site's wrapper may be a script
            return "", f"{command[0]} has not answered in {DEADLINE:g} s"
    if asked.returncode:
        said = (wrong or shown).strip().splitlines() or ["no reason given"]
        return "", f"{command[0]} failed: {said[-1].removeprefix(f'{command[0]}: ')}"
    return shown, ""


def learn(partition: str | None) -> Learned:
    """What Slurm's clients tell of GPU nodes, else what nvidia-smi tells of this machine. Raises UnknownPartition."""
    shown, why_not = ask(*slurm.SINFO)
    if not why_not:
        parts = {part.name: part for part in slurm.partitions(shown)}
        if partition and partition not in parts:
            raise UnknownPartition(f"Slurm has no partition {partition!r} that is up; it has {', '.join(parts)}")
        default = next((part.name for part in parts.values() if part.default), None)
        shown, why_not = ask(*slurm.SCONTROL)
    if why_not:
        return _this_machine(why_not)
    nodes = slurm.nodes(shown)
    chosen = slurm.most_gpus(nodes, partition or default)
    if not chosen and not partition:  # the default partition has no GPUs: the one whose nodes have the most
        chosen = slurm.most_gpus(nodes, None)
        default = next((part for node in chosen for part in node.partitions if part in parts), default)
    partition = partition or default
    limit = parts[partition].time_limit if partition and partition in parts else None
    notes = [f"Slurm: {len(nodes)} nodes, {len(chosen)} equal ones with GPUs in partition {partition or '(none)'}"]
    found = Learned(slurm=True, partition=partition, time_limit=limit, notes=tuple(notes))
    if not chosen:
        return found
    ready, kind = [node for node in chosen if not node.away], chosen[0].kind
    gpu = catalog_gpu(kind.gpu, names("gpu"))
    if len(ready) < len(chosen):
        notes.append(f"left out of these, down or drained: {len(chosen) - len(ready)}")
    if gpu is None:
        notes.append(f"Slurm calls the GPUs {kind.gpu!r}, no GPU of the catalog" if kind.gpu else "no type of GPU")
    return replace(
        found, nodes=len(ready) or None, gpus=kind.gpus, gpu=gpu, cpus=kind.cpus, memory=kind.memory,
        scratch=kind.scratch or None, source="scontrol show node", notes=tuple(notes),
    )  # fmt: skip


def _this_machine(why_not: str) -> Learned:
    """One machine with GPUs, from nvidia-smi and the system; `why_not`: why Slurm tells nothing."""
    shown, no_smi = ask(*SMI)
    gpus = [line.strip() for line in shown.splitlines() if line.strip()]
    if no_smi or len(set(gpus)) != 1:
        return Learned(notes=(why_not, no_smi or f"nvidia-smi lists GPUs of {len(set(gpus))} kinds"))
    return Learned(
        nodes=1, gpus=len(gpus), gpu=catalog_gpu(gpus[0], names("gpu")), **_own_size(), source="nvidia-smi",
        notes=(why_not, f"nvidia-smi: {len(gpus)} x {gpus[0]}"),
    )  # fmt: skip


def _own_size() -> Size:
    return {"cpus": os.cpu_count() or 1, "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def completed(said: Learned, read: Learned) -> Learned:
    """What was read, with what was said in its place. Sizes of nodes hold only for nodes of the kind that was read."""
    other = (said.gpu and said.gpu != read.gpu and read.gpu) or (said.gpus and read.gpus and said.gpus > read.gpus)
    if said.gpu == "cpu" and (said.nodes or 1) == 1:
        return replace(said, **_own_size(), source="this machine", notes=read.notes)
    if other or said.gpu == "cpu":
        return replace(said, slurm=read.slurm, notes=read.notes)
    return replace(
        read, nodes=said.nodes or read.nodes, gpus=said.gpus or read.gpus, gpu=said.gpu or read.gpu,
        partition=said.partition or read.partition,
    )  # fmt: skip
