"""Who may import whom (the import rules of the house), read from the source with ast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "schema": {"schema"},
    "catalog": {"catalog", "schema"},
    "templates": {"templates", "schema"},
    "compiler": {"compiler", "schema", "catalog", "templates"},
    "runtime": {"runtime", "schema"},
}
NEVER_IN_THE_COMPILER = ("torch", "vllm", "numpy", "torchtitan", "transformers")


def imported_modules(path: Path) -> set[str]:
    """Every module that a file imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "prlc" and len(parts) > 1:
                assert parts[1] in MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {module}"
            if room != "runtime":
                assert parts[0] not in NEVER_IN_THE_COMPILER, f"{path.relative_to(ROOT)} imports {module}"


def test_importing_the_compiler_loads_no_heavy_package() -> None:
    code = (
        "import sys, prlc.compiler, prlc.compiler.plan, prlc.compiler.bundle.emit, prlc.compiler.cli\n"
        f"print([m for m in {NEVER_IN_THE_COMPILER!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_every_package_is_listed_for_the_wheel() -> None:
    import tomllib

    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    listed = set(tool["packages"])
    there = {
        "prlc." + ".".join(path.parent.relative_to(ROOT).parts)
        for room in MAY_IMPORT
        for path in (ROOT / room).rglob("__init__.py")
    }
    assert there == listed
