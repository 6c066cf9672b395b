"""Where the processes of a run are: config/topology.yaml joined with the attempt's node addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prlc.schema.codec import load
from prlc.schema.topology import Endpoint, Role, Topology


class RendezvousError(RuntimeError):
    """The topology and the attempt's nodes do not fit together, or a name is not in them."""


@dataclass(frozen=True)
class Rendezvous:
    """A topology and the address of each of its nodes, by node index."""

    topology: Topology
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.addresses) < self.topology.nodes:
            raise RendezvousError(
                f"the topology has {self.topology.nodes} nodes, the nodes file has {len(self.addresses)} addresses"
            )

    @classmethod
    def from_environment(cls) -> Rendezvous:
        """The rendezvous of this process: PRLC_BUNDLE's topology and PRLC_NODES_FILE.

        Raises KeyError (variable not set), OSError, DocumentError, RendezvousError.
        """
        topology = load(Topology, Path(os.environ["PRLC_BUNDLE"]) / "config" / "topology.yaml")
        return cls(topology, read_nodes(Path(os.environ["PRLC_NODES_FILE"])))

    def address(self, node: int) -> str:
        """Address of a node by its index. Raises RendezvousError."""
        if not 0 <= node < len(self.addresses):
            raise RendezvousError(f"node {node} is not one of the job's {len(self.addresses)} nodes")
        return self.addresses[node]

    def role(self, name: str) -> Role:
        """A role by its name. Raises RendezvousError."""
        for role in self.topology.roles:
            if role.name == name:
                return role
        known = ", ".join(role.name for role in self.topology.roles)
        raise RendezvousError(f"no role {name!r} in the topology; it has: {known}")

    def endpoint(self, role: str, index: int) -> Endpoint:
        """A process by role and index. Raises RendezvousError."""
        for endpoint in self.role(role).endpoints:
            if endpoint.index == index:
                return endpoint
        raise RendezvousError(f"role {role!r} has no process {index}; it has {len(self.role(role).endpoints)}")

    def endpoint_url(self, role: str, index: int) -> str:
        """http://address:port of a process that listens. Raises RendezvousError."""
        endpoint = self.endpoint(role, index)
        if endpoint.port == 0:
            raise RendezvousError(f"{role}-{index} does not listen on a port")
        return f"http://{self.address(endpoint.node)}:{endpoint.port}"

    def urls(self, role: str) -> Iterator[str]:
        """URLs of a role's processes, in index order. Raises RendezvousError."""
        for endpoint in self.role(role).endpoints:
            yield self.endpoint_url(role, endpoint.index)


def read_nodes(path: Path) -> tuple[str, ...]:
    """Addresses of the attempt's nodes, in index order. Raises OSError."""
    return tuple(line.strip() for line in Path(path).read_text("utf-8").splitlines() if line.strip())


def address(node: int) -> str:
    """Address of a node of this process's run. Raises what Rendezvous.from_environment and address raise."""
    return Rendezvous.from_environment().address(node)


def endpoint_url(role: str, index: int) -> str:
    """URL of a process of this run. Raises what Rendezvous.from_environment and endpoint_url raise."""
    return Rendezvous.from_environment().endpoint_url(role, index)
