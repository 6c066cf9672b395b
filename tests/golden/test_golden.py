"""The examples' bundles, byte for byte: a change here is a change that a reviewer must want."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import verify

from tests.golden.update import GOLDEN, HERE, build
from tests.templates.lint import problems


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("example", GOLDEN)
def test_a_bundle_is_the_golden_one(example: str, tmp_path: Path) -> None:
    build(example, tmp_path / "first")
    build(example, tmp_path / "second")
    first, golden = files(tmp_path / "first"), files(HERE / example)
    assert first == files(tmp_path / "second"), "the same spec gives the same bytes"
    assert first.keys() == golden.keys()
    changed = [name for name in golden if golden[name] != first[name]]
    assert not changed, "differs from tests/golden; if it is meant: python -m tests.golden.update"


@pytest.mark.parametrize("example", GOLDEN)
def test_a_golden_bundle_is_whole_and_its_scripts_are_sound(example: str) -> None:
    assert verify(HERE / example) == []
    assert problems(HERE / example) == []
