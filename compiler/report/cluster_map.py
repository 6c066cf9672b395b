"""Every node of the run with its GPUs, coloured by role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.schema.plan import Plan

WIDTH = 960
CELL, GAP, PAD = 9, 2, 5  # pixels of a GPU, between two, and around them
LABEL = 12  # pixels above the cells
SMALL = 128  # nodes from which a node is one cell
SERVICES = {"orchestrator": "O", "router": "R", "store": "S", "environment": "E"}


@dataclass(frozen=True)
class Cell:
    """One GPU, or one whole node of a large cluster."""

    x: float
    y: float
    role: str
    title: str


@dataclass(frozen=True)
class Box:
    """One node."""

    x: float
    y: float
    width: float
    height: float
    label: str
    badges: str  # letters of the services that run there
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ClusterMap:
    """The drawing and its legend: (role, words)."""

    width: float
    height: float
    cell: float
    boxes: tuple[Box, ...]
    legend: tuple[tuple[str, str], ...]
    services: tuple[tuple[str, str], ...]


def cluster_map(plan: Plan) -> ClusterMap:
    """Nodes in order of the allocation, as many a row as fit."""
    nodes, gpus = plan.topology.nodes, max(1, plan.cluster.gpus_per_node)
    owner: dict[tuple[int, int], str] = {}
    services: dict[int, list[str]] = {}
    for role in plan.topology.roles:
        for endpoint in role.endpoints:
            if role.kind in SERVICES:
                services.setdefault(endpoint.node, []).append(role.kind)
                continue
            for device in endpoint.devices or ((0,) if plan.cluster.gpu == "cpu" else ()):
                owner[endpoint.node, device] = role.kind
    whole = nodes > SMALL
    across = 1 if whole else min(4, gpus)
    down = 1 if whole else -(-gpus // across)
    width = 2 * PAD + across * CELL + (across - 1) * GAP
    height = LABEL * (not whole) + 2 * PAD + down * CELL + (down - 1) * GAP
    row = max(1, int((WIDTH + GAP) // (width + 4)))
    boxes = []
    for node in range(nodes):
        x, y = node % row * (width + 4), node // row * (height + 4)
        held = [owner.get((node, device), "idle") for device in range(gpus)]
        shown = [max(set(held), key=held.count)] if whole else held
        cells = tuple(
            Cell(
                x=x + PAD + place % across * (CELL + GAP),
                y=y + PAD + LABEL * (not whole) + place // across * (CELL + GAP),
                role=role,
                title=f"node {node}, {'all' if whole else f'GPU {place}'}: {role}",
            )
            for place, role in enumerate(shown)
        )
        here = tuple(dict.fromkeys(services.get(node, ())))
        boxes.append(
            Box(
                x=x, y=y, width=width, height=height, label="" if whole else str(node),
                badges="" if whole else "".join(SERVICES[s] for s in here),
                title=", ".join([f"node {node}", *sorted(set(held)), *here]),
                cells=cells,
            )
        )  # fmt: skip
    found = [
        kind for kind in ("trainer", "prefill", "decode", "engine", "idle") if kind in {*owner.values(), *_idle(boxes)}
    ]
    counts = {kind: sum(role == kind for role in owner.values()) for kind in found}
    unit = "processes" if plan.cluster.gpu == "cpu" else "GPUs"
    return ClusterMap(
        width=min(nodes, row) * (width + 4),
        height=-(-nodes // row) * (height + 4),
        cell=CELL,
        boxes=tuple(boxes),
        legend=tuple((k, f"{k}: {counts[k]} {unit}" if counts[k] else "not used") for k in found),
        services=tuple((SERVICES[k], k) for k in SERVICES if any(k in s for s in services.values())),
    )


def _idle(boxes: list[Box]) -> set[str]:
    return {cell.role for box in boxes for cell in box.cells}
