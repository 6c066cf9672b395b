"""GPUs and clusters: catalog/gpus/*.yaml and catalog/clusters/*.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Bytes, BytesPerSecond, FlopsPerSecond, doc


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One kind of accelerator (or 'cpu')."""

    name: str = doc("Catalog name.")
    device: Literal["cuda", "cpu"] = doc("torch device type.")
    compute_capability: str | None = doc("e.g. 9.0.", default=None)
    memory: Bytes = doc("Memory that torch reports for one device.")
    memory_source: str = doc("Where the figure comes from.")
    memory_bandwidth: BytesPerSecond = doc("Peak HBM bandwidth.")
    bf16_dense: FlopsPerSecond = doc("Achieved dense bf16 GEMM rate.")
    fp8_dense: FlopsPerSecond | None = doc("Achieved dense fp8 GEMM rate.", default=None)
    bf16_grouped: FlopsPerSecond | None = doc("Achieved grouped bf16 GEMM rate at >= 256 rows a group.", default=None)
    fp8_grouped: FlopsPerSecond | None = doc("Achieved grouped fp8 GEMM rate at >= 256 rows a group.", default=None)
    attention: FlopsPerSecond = doc("Achieved attention rate.")
    sources: tuple[str, ...] = doc("Sources of the rates.")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node of a cluster."""

    gpu: str = doc("Catalog name of its GPU.")
    gpus: int = doc("GPUs of a node; on a CPU cluster, processes that may act as one.", minimum=0)
    cpus: int = doc("CPU cores.", minimum=1)
    memory: Bytes = doc("Host memory.")
    nvme: Bytes = doc("Local scratch.", default=0)
    intra_bandwidth: BytesPerSecond = doc("Bus bandwidth a GPU inside the node, collectives.")
    inter_bandwidth: BytesPerSecond = doc("Bandwidth a GPU across nodes, achieved.")
    nics: tuple[str, ...] = doc("NIC of each GPU, in GPU order; empty: not stated.", default=())
    fabric: Literal["infiniband", "roce"] | None = doc("Link layer of the NICs; absent: not stated.", default=None)
    gid_index: int | None = doc("RoCE: index of the GID that the switches route; absent: not stated.", default=None)
    interface: str | None = doc("IP interface of control traffic, e.g. eth0; absent: by address.", default=None)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster of equal nodes."""

    name: str = doc("Catalog name.")
    launcher: Literal["slurm", "local"] = doc("How jobs start.")
    nodes: int = doc("Nodes.", minimum=1)
    node: Node = doc("What each node is.")
    leaf_nodes: int | None = doc("Nodes under one leaf switch; absent: one switch.", default=None, minimum=1)
    base_port: int = doc("First port of the range that runs use.", default=20000, minimum=1024, maximum=60000)
    filesystem: Bytes | None = doc(
        "Space that runs may fill on the filesystem that all nodes share; absent: not stated.", default=None
    )
    sources: tuple[str, ...] = doc("Sources.", default=())
