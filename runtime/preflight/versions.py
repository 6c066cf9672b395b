"""Distributions of the environment against the plan's pins, without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from prlc.runtime.preflight.probe import Finding, Where


def probe(where: Where) -> Iterator[Finding]:
    """One finding a distribution that is missing or has another version."""
    for pin in where.config.versions:
        try:
            found = metadata.version(pin.name)
        except metadata.PackageNotFoundError:
            yield Finding("versions", f"{pin.name} is not installed, the plan wants {pin.version}")
            continue
        if found.partition("+")[0] != pin.version.partition("+")[0]:
            yield Finding("versions", f"{pin.name} {found}, the plan wants {pin.version}")
