"""Stands in for every program of a GPU bundle: `vllm`, `vllm-router`, `mooncake_master`, `torchrun`, the orchestrator.

It holds its whole command line and environment against the plan, looks whether it is on the planned node, opens every
port that the plan gives it, finds its peers, and says so in seen/<role>-<index>. Standard library alone, since some
hundred and forty of them start at once on one machine.
"""

import json
import os
import re
import socket
import sys
import threading
import time
import urllib.request

PATIENCE = 100.0  # s for all peers


def fail(text):
    """Whatever is not as planned ends the run with its cause."""
    print("NOT AS PLANNED:", text, flush=True)
    sys.exit(9)


def eventually(what, why):
    """The value of what() once it is true."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if value := what():
                return value
        except OSError as error:
            last = error
        else:
            last = "no"
        if time.monotonic() > end:
            fail(f"{why}: {last}")
        time.sleep(0.3)


def connect(address, port):
    """One TCP connection."""
    socket.create_connection((address, int(port)), 5).close()
    return True


def health(url):
    """True where /health answers 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(f"{url}/health", timeout=10).status == 200


def listen(address, port, answer=b""):
    """Listen, and answer each connection with HTTP where there is an answer."""
    server = socket.create_server((address, int(port)), backlog=512)

    def serve():
        while True:
            connection, _ = server.accept()
            with connection:
                if answer:
                    connection.settimeout(5)
                    try:
                        connection.recv(4096)
                        connection.sendall(answer)
                    except OSError:
                        pass

    threading.Thread(target=serve, daemon=True).start()


def main():
    run, bundle = os.environ["PRLC_RUN_DIR"], os.environ["PRLC_BUNDLE"]
    with open(os.path.join(run, "attempts", os.environ["PRLC_ATTEMPT"], "nodes")) as file:
        nodes = file.read().split()
    with open(os.path.join(bundle, "plan.json")) as file:
        plan = json.load(file)
    words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    collectives = "prlc.runtime.preflight.collectives" in words
    role = "collectives" if collectives else os.environ["PRLC_ROLE"]
    index = int(os.environ["SLURM_PROCID"] if collectives else os.environ["PRLC_INDEX"])
    launch = next(each for each in plan["launches"] + plan["checks"] if each["role"] == role)
    tables = {table["name"]: table["values"] for table in launch["tables"]}

    def value(text):
        def look(match):
            name = match[1]
            if name in tables:
                return tables[name][index]
            if name.startswith("NODE_"):
                return nodes[int(name[5:])]
            if name == "ADDRESS":
                return nodes[int(tables["NODE"][index])]
            if name.endswith("_ADDRESS"):
                return nodes[int(tables[f"{name[:-8]}_NODE"][index])]
            return {"BUNDLE": bundle, "RUN_DIR": run, "INDEX": str(index)}.get(name, match[0])

        return re.sub(r"\{([A-Z][A-Z0-9_]*)\}", look, text)

    wanted = [value(word) for word in [*launch["command"], *(word for flag in launch["flags"] for word in flag)]]
    if words != wanted:
        fail(f"command {words}, planned {wanted}")
    for variable in launch["environment"]:
        name, planned = variable["name"], value(variable["value"])
        if name == "PRLC_MOONCAKE_JSON":  # the agent has made it a file
            with open(os.environ["MOONCAKE_CONFIG_PATH"]) as file:
                said = file.read()
        else:
            said = os.environ.get(name)
        if said != planned:
            fail(f"{name}={said}, planned {planned}")

    per_node = launch["tasks_per_node"]
    node = launch["nodes"][index // per_node]
    host = socket.gethostname()
    if host != f"n{node + 1:02d}" or socket.gethostbyname(host) != nodes[node]:
        fail(f"on {host}, planned node {node} ({nodes[node]})")
    if launch["gpus_per_task"] and os.environ.get("SLURM_GPUS_ON_NODE") != "8":
        fail(f"SLURM_GPUS_ON_NODE={os.environ.get('SLURM_GPUS_ON_NODE')}")

    flags = {flag[0]: flag[1:] for flag in [[value(word) for word in flag] for flag in launch["flags"]]}
    if role == "collectives":
        master = flags["--master-addr"][0], flags["--master-port"][0]
        if index == 0:
            listen(*master)
        eventually(lambda: connect(*master), "rank 0 of the collectives")
        if index == 0:
            time.sleep(5)
        return
    for need in plan["preflight"]["ports"]:
        owner, purpose = need["owner"].split()
        if owner == f"{role}-{index}":
            for port in range(need["port"], need["port"] + need["count"]):
                listen(nodes[node], port, b"HTTP/1.0 200 OK\r\n\r\n" if purpose == "http" else b"")
    if role in ("prefill", "decode", "engine"):
        if "--data-parallel-rpc-port" in flags:
            head = flags["--data-parallel-address"][0], flags["--data-parallel-rpc-port"][0]
            eventually(lambda: connect(*head), f"head of the replica at {head}")
        if "MOONCAKE_CONFIG_PATH" in os.environ:
            with open(os.environ["MOONCAKE_CONFIG_PATH"]) as file:
                store = json.load(file)["master_server_address"].split(":")
            eventually(lambda: connect(*store), "master of the store")
    elif role == "router":
        for flag in launch["flags"]:
            if flag[0] in ("--prefill", "--decode", "--worker-urls"):
                for url in map(value, flag[1:]):
                    eventually(lambda url=url: health(url), f"worker {url}")
    elif role == "trainer":
        master = flags["--master-addr"][0], flags["--master-port"][0]
        eventually(lambda: connect(*master), "rank 0 of the trainer")
    elif role == "orchestrator":
        router = next(each for each in plan["topology"]["roles"] if each["name"] == "router")["endpoints"][0]
        eventually(lambda: health(f"http://{nodes[router['node']]}:{router['port']}"), "the router")
    seen = os.path.join(run, "seen")
    os.makedirs(seen, exist_ok=True)
    with open(os.path.join(seen, f"{role}-{index}"), "w") as file:
        file.write(host)
    total = sum(len(each["nodes"]) * each["tasks_per_node"] for each in plan["launches"])
    if role in ("trainer", "orchestrator"):
        eventually(lambda: len(os.listdir(seen)) == total, f"{total} processes")
        with open(os.path.join(run, "done", role), "w"):
            pass
    else:
        time.sleep(600)


main()
