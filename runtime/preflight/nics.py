"""NICs: there, link up, link layer as planned (Linux: Documentation/ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

from collections.abc import Iterator

from prlc.runtime.preflight.probe import Finding, Where

LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}


def probe(where: Where) -> Iterator[Finding]:
    """One finding a NIC that is missing or down. Names may carry a port: mlx5_0:1; without it any port counts."""
    folder = where.sysfs / "class" / "infiniband"
    for name in dict.fromkeys(where.config.nics):
        device, _, port = name.partition(":")
        ports = sorted((folder / device / "ports").glob(port or "*"))
        if not ports:
            known = ", ".join(sorted(p.name for p in folder.glob("*"))) or "none"
            yield Finding("nics", f"no NIC {name}; this node has: {known}")
            continue
        states = {p.name: (p / "state").read_text().strip() for p in ports}
        if not any(state.endswith("ACTIVE") for state in states.values()):
            said = ", ".join(f"port {number} {state}" for number, state in states.items())
            yield Finding("nics", f"{name} is down: {said}")
        wanted = LAYERS.get(where.config.fabric)
        layers = {(p / "link_layer").read_text().strip() for p in ports} if wanted else set()
        if wanted and wanted not in layers:
            yield Finding("nics", f"{name} has link layer {', '.join(sorted(layers))}, {wanted} wanted")
