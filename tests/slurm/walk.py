"""`python walk.py RUN_DIR`: knocks on every TCP port that a process of the run listens on here, without the token.

One JSON line a port: address, port, command, and the status of each route asked ('' where it does not speak HTTP).
"""

import json
import os
import socket
import sys
from pathlib import Path

ROUTES = (
    "GET /health", "GET /metrics", "GET /v1/models", "GET /docs", "GET /openapi.json", "GET /server_info",
    "POST /pause?mode=abort", "POST /resume", "POST /update_weights", "POST /collective_rpc", "POST /abort_requests",
    "POST /inference/v1/generate", "POST /v1/completions", "POST /sleep", "GET /nowhere",
)  # fmt: skip


def listeners():
    """(address, port, inode) of every listening socket."""
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                text, _, port = fields[1].rpartition(":")
                raw = b"".join(bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8))
                yield socket.inet_ntop(family, raw), int(port, 16), fields[9]


def owner(inode, run):
    """Command of the run's process that holds a socket; None where it is another's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(handle) == f"socket:[{inode}]" for handle in (entry / "fd").iterdir()):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"PRLC_RUN_DIR={run}".encode() in variables:
                    return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return None


def ask(address, port, route, bearer):
    """HTTP status of a request, '' for no HTTP answer."""
    headers = f"Host: x\r\nContent-Length: 2\r\nContent-Type: application/json\r\n{bearer}Connection: close\r\n\r\n{{}}"
    try:
        with socket.create_connection((address, port), 5) as connection:
            connection.settimeout(5)
            connection.sendall(f"{route} HTTP/1.1\r\n{headers}".encode())
            said = connection.recv(64).decode("latin-1")
    except OSError:
        return ""
    return said.split()[1] if said.startswith("HTTP/") else ""


def main():
    for address, port, inode in sorted(listeners()):
        command = owner(inode, sys.argv[1])
        if command is None or command.startswith("srun "):  # srun's are Slurm's own, guarded by munge
            continue
        at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        first = ask(at, port, ROUTES[0], "")
        asked = [first]
        if first:
            for bearer in ("", "Authorization: Bearer " + "0" * 64 + "\r\n"):
                asked += [ask(at, port, route, bearer) for route in ROUTES]
        print(json.dumps({"address": address, "port": port, "command": command, "status": sorted(set(asked))}))


main()
