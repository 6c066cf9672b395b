"""Broken specs as people write them: every mistake is reported in one go, at a line, with a cure."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc.compiler.plan import plan
from prlc.schema.diagnostics import render_text

BROKEN = sorted((Path(__file__).parents[1] / "fixtures" / "broken").glob("*.yaml"))


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 10


@pytest.mark.parametrize("path", BROKEN, ids=lambda p: p.stem)
def test_every_mistake_is_reported_at_once(path: Path) -> None:
    text = path.read_text()
    wanted = set(text.splitlines()[0].removeprefix("# refused with: ").split())
    made, found = plan(text, str(path))
    errors = [d for d in found if d.severity == "error"]
    assert made is None
    assert {d.code for d in errors} == wanted, [(d.code, d.message) for d in errors]
    for diagnostic in errors:
        assert diagnostic.span is not None
        assert any(note.label == "help" and note.text for note in diagnostic.notes), diagnostic.code
    shown = render_text(errors, {str(path): text})
    assert shown.count("error[") == len(errors)
    assert max(map(len, shown.splitlines())) < 240
