"""Which NIC serves which GPU, as the variables that NCCL, UCX (NIXL) and Mooncake read.

Sources: NCCL user guide, environment variables NCCL_IB_HCA ('=' means exact names), NCCL_IB_GID_INDEX,
NCCL_SOCKET_IFNAME; `ucx_info -f`, UCX_NET_DEVICES and UCX_IB_GID_INDEX; Mooncake transfer engine, device_name and
MC_GID_INDEX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prlc.schema.plan import Variable

if TYPE_CHECKING:
    from prlc.schema.hardware import Node


def collective_variables(node: Node) -> tuple[Variable, ...]:
    """For processes that use NCCL: every NIC, by exact name; NCCL itself pairs them with GPUs by distance."""
    found = []
    if node.nics:
        names = ",".join(dict.fromkeys(node.nics))
        found.append(Variable(name="NCCL_IB_HCA", value=f"={names}", why="exactly these NICs"))
    if node.gid_index is not None:
        found.append(Variable(name="NCCL_IB_GID_INDEX", value=str(node.gid_index), why="RoCE"))
    if node.interface is not None:
        found += [
            Variable(name="NCCL_SOCKET_IFNAME", value=f"={node.interface}"),
            Variable(name="GLOO_SOCKET_IFNAME", value=node.interface),
        ]
    return tuple(found)


def transfer_variables(node: Node) -> tuple[Variable, ...]:
    """For processes that move KV blocks with UCX or Mooncake; {NIC} is the table of `nic_table`."""
    found = []
    if node.nics:
        found.append(Variable(name="UCX_NET_DEVICES", value="{NIC}", why="the NICs of this process's GPUs"))
    if node.gid_index is not None:
        found += [
            Variable(name="UCX_IB_GID_INDEX", value=str(node.gid_index)),
            Variable(name="MC_GID_INDEX", value=str(node.gid_index)),
        ]
    return tuple(found)


def nic_table(node: Node, devices: Sequence[tuple[int, ...]], port: bool) -> tuple[str, ...]:
    """NICs of each process by its GPUs, comma-separated; UCX wants a port (mlx5_0:1), Mooncake a bare name."""
    found = []
    for gpus in devices:
        names = dict.fromkeys(node.nics[gpu] for gpu in gpus)
        found.append(",".join(_name(name, port) for name in names))
    return tuple(found)


def _name(nic: str, port: bool) -> str:
    device, _, number = nic.partition(":")
    return f"{device}:{number or '1'}" if port else device
