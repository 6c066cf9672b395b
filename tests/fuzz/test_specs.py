"""Any text is a plan or has diagnostics, never a traceback, and never takes more than two seconds.

`make test` tries 600 of them; `python -m tests.fuzz.many 10000` that many, and lists what is wrong by its place.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from prlc.compiler.bundle.emit import build
from prlc.compiler.plan import plan
from prlc.schema.diagnostics import render_text, to_github, to_json, to_sarif

from tests.fuzz.mutations import specs

EXAMPLES = Path(__file__).parents[2] / "examples"
# planning a large example takes a hundred times as long as a small one
SMALL = ("tiny-moe", "qwen3-30b")
BASES = {
    path.stem: (path.read_text(), 20 if path.stem.startswith(SMALL) else 1) for path in sorted(EXAMPLES.glob("*.yaml"))
}
COUNT = 600
LIMIT = 2.0  # s of one plan


def judge(name: str, text: str) -> float:
    """Seconds of processor time of one plan. Raises AssertionError, or what the compiler raised."""
    filename = str(EXAMPLES / f"{name}.yaml")
    began = time.process_time()
    made, found = plan(text, filename)
    took = time.process_time() - began
    assert took < LIMIT, f"{took:.1f} s"
    assert (made is None) == any(d.severity == "error" for d in found)
    for diagnostic in found:
        assert diagnostic.message
        assert diagnostic.span is not None, diagnostic.message
    assert bool(found) == bool(render_text(found, {filename: text}))
    assert to_json(found)
    assert to_sarif(found)
    assert bool(found) == bool(to_github(found))
    if made is not None:
        assert build(made)
    return took


def tried(count: int, *phases: Phase) -> settings:
    """The same specs each time."""
    return settings(
        max_examples=count,
        phases=phases,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(600)
@tried(COUNT, Phase.generate, Phase.shrink)
@given(specs(BASES))
def test_a_plan_or_diagnostics(spec: tuple[str, str]) -> None:
    judge(*spec)
