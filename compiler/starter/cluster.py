"""A cluster file from what was stated, what was read, and what is assumed, each said so in its sources."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from prlc.schema.codec import dump, format_quantity
from prlc.schema.hardware import Cluster, Node

HEAD = """\
# A cluster file of prlc: equal nodes. Put your own measurements in place of what
# the sources call assumed: forecasts rest on them. Sources stay beside the values.
"""


@dataclass(frozen=True, kw_only=True)
class Known:
    """Values with where each comes from; a field that nobody knows is None."""

    name: str
    launcher: str
    nodes: int
    gpu: str
    gpus: int
    stated: str  # where nodes, gpu and gpus come from
    cpus: int | None = None
    memory: int | None = None  # bytes
    scratch: int | None = None  # bytes
    read: str = ""  # where cpus, memory and scratch come from


def cluster_of(known: Known, like: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and what could not be learned, in words. What is not known is taken from `like`."""
    node, base = dataclasses.asdict(like.node), like.node
    node |= {"gpu": known.gpu, "gpus": known.gpus, "nics": (), "fabric": None, "gid_index": None, "interface": None}
    node["nvme"] = known.scratch or 0  # scratch that nobody has seen is not counted on
    sources = [f"nodes, gpu, gpus: {known.stated}"]
    assumed = [f"intra_bandwidth {format_quantity(base.intra_bandwidth, 'bytes_per_second')} a GPU inside a node"]
    assumed += [f"inter_bandwidth {format_quantity(base.inter_bandwidth, 'bytes_per_second')} a GPU across nodes"]
    for key, value in (("cpus", known.cpus), ("memory", known.memory)):
        if value:
            node[key] = value
            sources.append(f"{key}: {known.read}")
        else:
            shown = format_quantity(node[key], "bytes") if key == "memory" else node[key]
            assumed.append(f"{key} {shown} a node")
    if known.scratch:
        sources.append(f"nvme: {known.read}")
    sources += [f"{value}: assumed, as in the catalog's {like.name}" for value in assumed]
    cluster = Cluster(
        name=known.name,
        launcher="slurm" if known.launcher == "slurm" else "local",
        nodes=known.nodes,
        node=Node(**node),
        sources=tuple(sources),
    )
    unknown = [f"{value}: assumed" for value in assumed]
    unknown += [] if known.scratch else ["nvme, local scratch of a node: none is counted on"]
    unknown += ["filesystem, the space that runs may fill: not checked"]
    if known.nodes > 1:
        unknown += ["nics and fabric: not stated, so bundles name none", "leaf_nodes: one switch is assumed"]
    return cluster, tuple(unknown)


def cluster_text(cluster: Cluster) -> str:
    """YAML of a cluster with comments; keys that are not stated are left out."""
    lines = dump(cluster).splitlines()
    return HEAD + "\n".join(line for line in lines if not line.endswith((": null", ": []"))) + "\n"


def catalog_gpu(said: str, known: Iterable[str]) -> str | None:
    """Catalog name of a GPU as Slurm or nvidia-smi spells it; None where none or several fit.

    >>> catalog_gpu("nvidia_h100_80gb_hbm3", ("b200", "h100", "h200"))
    'h100'
    """
    found = [name for name in known if name in re.split(r"[^a-z0-9]+", said.lower())]
    return found[0] if len(found) == 1 else None
