"""What the nodes found: one file a node, and a file a rank of the collective smoke; read at the end of an attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prlc.runtime.ops.files import write_atomic
from prlc.runtime.ops.rendezvous import read_nodes
from prlc.runtime.ops.run_paths import RunPaths

SHOWN = 8  # nodes whose findings are told


def write(folder: Path, kind: str, number: int, **fields: Any) -> None:
    """One node's ('node') or one rank's ('rank') report. Raises OSError."""
    write_atomic(folder / f"{kind}-{number}.json", json.dumps(fields) + "\n")


def cause(paths: RunPaths, attempt: int) -> str | None:
    """Why preflight let the attempt not begin, with the nodes named; None where it has nothing against it."""
    folder = paths.preflight(attempt)
    try:
        addresses = read_nodes(paths.attempt(attempt) / "nodes")
    except OSError:
        return None
    nodes = _read(folder, "node")
    if not nodes:
        return None  # the bundle has no preflight, or it did not come to it
    texts = []
    for node, address in enumerate(addresses):
        name = f"node {node} ({nodes.get(node, {}).get('host', address)})"
        if node not in nodes:
            texts.append(f"{name}: no answer")
        elif nodes[node]["problems"]:
            texts.append(f"{name}: {'; '.join(nodes[node]['problems'])}")
    if not texts:
        ranks = _read(folder, "rank")
        texts = [f"{r['host']} rank {n}: {r['stage']}: {r['error']}" for n, r in sorted(ranks.items()) if r["error"]]
    if not texts:
        return None
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"preflight: {' | '.join(texts[:SHOWN])}{more}"


def _read(folder: Path, kind: str) -> dict[int, dict[str, Any]]:
    found = {}
    for path in folder.glob(f"{kind}-*.json"):
        try:
            found[int(path.stem.rpartition("-")[2])] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
    return found
