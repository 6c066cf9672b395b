"""This node's name and address, and the ports that the run will want on it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from prlc.runtime.agent.listeners import holders
from prlc.runtime.preflight.probe import Finding, Where

SHOWN = 4  # taken ports that are named


def names(where: Where) -> Iterator[Finding]:
    """The host's own name resolves, and the address that the others will use is this host's."""
    host = socket.gethostname()
    try:
        found = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        yield Finding("names", f"this host's name {host} does not resolve: {error}")
        found = []
    with socket.socket() as one:
        try:
            one.bind((where.address, 0))
        except OSError as error:
            yield Finding("names", f"{where.address} is no address of {host}: {error.strerror}")
    if found and where.address not in found and not where.address.startswith("127."):
        yield Finding("names", f"{host} resolves to {', '.join(found)}, not to {where.address}", "warning")


def ports(where: Where) -> Iterator[Finding]:
    """Every planned port of this node can be bound."""
    taken = []
    for need in where.config.ports:
        if need.node != where.node:
            continue
        for port in range(need.port, need.port + need.count):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    one.bind((where.address, port))
                    one.listen()
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        taken.append((port, need.owner))
    for port, owner in taken[:SHOWN]:
        by = ", ".join(str(holder) for holder in holders(port)) or "a process of another user"
        yield Finding("ports", f"{where.address}:{port} ({owner}) is held by {by}")
    if len(taken) > SHOWN:
        yield Finding("ports", f"{len(taken) - SHOWN} more planned ports are taken")
