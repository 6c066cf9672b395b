"""config/preflight.yaml: what every node must be like before any weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Bytes, Seconds, doc


@dataclass(frozen=True, kw_only=True)
class PortNeed:
    """Ports that a process of the run will listen on."""

    node: int = doc("Index of the node in the allocation.", minimum=0)
    port: int = doc("First port.", minimum=1, maximum=65535)
    count: int = doc("Ports from it on.", default=1, minimum=1)
    owner: str = doc("Process and purpose, e.g. 'decode-3 http'.")


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Host memory that the run takes on some nodes."""

    nodes: tuple[int, ...] = doc("Indexes of the nodes.")
    memory: Bytes = doc("What the run's processes take there; must be available.")


@dataclass(frozen=True, kw_only=True)
class VersionPin:
    """A Python distribution at the version that the plan was made for."""

    name: str = doc("Name of the distribution.")
    version: str = doc("Version; a local part such as +cu130 is not compared.")


@dataclass(frozen=True, kw_only=True)
class PreflightConfig:
    """config/preflight.yaml. Each probe has a deadline; a node that fails one is named and the run does not start."""

    device: Literal["cpu", "cuda"] = doc("What computes.")
    gpus: int = doc("GPUs of a node; 0 on a CPU.", minimum=0)
    gpu_memory: Bytes = doc("Memory that each GPU must have.", default=0)
    driver: str = doc("Least driver version; empty: any.", default="")
    nics: tuple[str, ...] = doc("NICs that must be there with their link up.", default=())
    fabric: Literal["infiniband", "roce", ""] = doc("Link layer of the NICs; empty: not stated.", default="")
    memory: tuple[MemoryNeed, ...] = doc("Host memory.", default=())
    disk: Bytes = doc("Bytes that the run writes into its folder.", default=0)
    ports: tuple[PortNeed, ...] = doc("Ports that must be free.", default=())
    versions: tuple[VersionPin, ...] = doc("Distributions of the environment.", default=())
    model: str = doc("Checkpoint: an absolute folder, one below the run directory, or a hub id in the cache.")
    model_type: str = doc("Its Hugging Face model_type.")
    checkpoint_nodes: tuple[int, ...] = doc("Nodes that read the checkpoint.", default=())
    clock_tolerance: Seconds = doc("Largest distance to the clock of the shared filesystem.", default=5.0)
    probe_deadline: Seconds = doc("Longest time of one probe.", default=30.0)
    shared_deadline: Seconds = doc("Longest time until a file of one node is seen on all others.", default=75.0)
    collective_port: int = doc("Port on node 0 where the ranks of the collective smoke meet; 0: no smoke.", default=0)
    collective_ranks: int = doc("Ranks of a node in the smoke.", default=1, minimum=1)
    collective_deadline: Seconds = doc("Longest time of one collective.", default=60.0)
