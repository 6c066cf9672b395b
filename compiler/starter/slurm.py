"""What Slurm's clients say of nodes and partitions, read by field: `scontrol show node --oneliner`, `sinfo`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

SINFO = ("sinfo", "--noheader", "--format=%P|%l|%a")  # partition, * on the default one; time limit; up or not
SCONTROL = ("scontrol", "show", "node", "--oneliner")
# states, in any combination joined by +, in which a node takes no job (scontrol's manual, "NODE STATES")
AWAY = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "UNKNOWN"})


@dataclass(frozen=True, order=True)
class Kind:
    """What nodes have in common. Memory and scratch in bytes; 0 scratch: not stated."""

    gpu: str  # type of the Gres, as Slurm spells it; "" where it has none
    gpus: int
    cpus: int
    memory: int
    scratch: int


@dataclass(frozen=True)
class SlurmNode:
    """One node."""

    name: str
    kind: Kind
    partitions: tuple[str, ...]
    away: bool  # down, drained or failing


@dataclass(frozen=True)
class Partition:
    """One partition; `time_limit` in seconds, None without a limit."""

    name: str
    default: bool
    time_limit: float | None


def nodes(text: str) -> tuple[SlurmNode, ...]:
    """Nodes of `scontrol show node --oneliner`. A line without NodeName, CPUTot or RealMemory is left out."""
    found = []
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line))
        if not (fields.get("NodeName") and _number(fields.get("CPUTot")) and _number(fields.get("RealMemory"))):
            continue
        gpu, count = gres(fields.get("Gres", ""))
        kind = Kind(
            gpu, count, _number(fields["CPUTot"]), _number(fields["RealMemory"]) << 20,
            _number(fields.get("TmpDisk")) << 20,
        )  # fmt: skip
        states = set(re.split(r"[^A-Z]+", fields.get("State", "UNKNOWN").upper()))
        partitions = tuple(p for p in fields.get("Partitions", "").split(",") if p)
        found.append(SlurmNode(fields["NodeName"], kind, partitions, bool(states & AWAY)))
    return tuple(found)


def gres(text: str) -> tuple[str, int]:
    """Type and number of the GPUs of a Gres field; ("", 0) without any. Of several types the most numerous.

    >>> gres("gpu:h200:8(S:0-1),nvme:1"), gres("gpu:4"), gres("(null)")
    (('h200', 8), ('', 4), ('', 0))
    """
    count: Counter[str] = Counter()
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        match = re.fullmatch(r"gpu(?::([A-Za-z][^:]*))?:(\d+)", part)
        if match:
            count[match[1] or ""] += int(match[2])
    return min(count.items(), key=lambda item: (-item[1], item[0]), default=("", 0))


def partitions(text: str) -> tuple[Partition, ...]:
    """Partitions that are up, from sinfo with the format of SINFO; each once."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        name, limit, state = [part.strip() for part in (*line.split("|"), "", "")[:3]]
        if name and state == "up":
            bare = name.removesuffix("*")
            found.setdefault(bare, Partition(bare, name.endswith("*"), seconds(limit)))
    return tuple(found.values())


def seconds(limit: str) -> float | None:
    """A time limit as sinfo prints it, [days-][[hours:]minutes:]seconds; None: infinite or not readable.

    >>> seconds("1-00:00:00"), seconds("30:00"), seconds("infinite")
    (86400.0, 1800.0, None)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def most_gpus(found: Iterable[SlurmNode], partition: str | None) -> tuple[SlurmNode, ...]:
    """The equal nodes of a partition (None: of all) that have the most GPUs together, those that are away too.

    Empty where no node has a GPU.
    """
    kinds: dict[Kind, list[SlurmNode]] = {}
    for node in found:
        if node.kind.gpus and partition in (None, *node.partitions):
            kinds.setdefault(node.kind, []).append(node)
    chosen = max(sorted(kinds), key=lambda kind: kind.gpus * len(kinds[kind]), default=None)
    return () if chosen is None else tuple(kinds[chosen])


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
