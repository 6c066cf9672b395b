"""Every planned example has its page, and a page is written from the plan."""

from __future__ import annotations

import pytest

from tests.docs.plans import ARGUMENTS, EXAMPLES, OUT, page

GPU = sorted(path.stem for path in EXAMPLES.glob("*-h200.yaml"))


def test_every_gpu_example_has_its_argument_and_its_page() -> None:
    assert sorted(ARGUMENTS) == GPU
    for name in GPU:
        text = (OUT / f"{name}.md").read_text("utf-8")
        assert text.startswith(f"# {ARGUMENTS[name].title}\n")
        for heading in ("## The plan", "## Why", "## What each choice beat", "## How sure"):
            assert heading in text


@pytest.mark.parametrize("name", ["qwen3-30b-a3b-1x8-h200"])
def test_a_page_says_what_the_plan_says(name: str) -> None:
    text = page(name, ARGUMENTS[name])
    assert "trainer" in text
    assert "(chosen)" in text
    assert text.count("| `trainer.parallel.ep: ") >= 4
    assert "refused" in text or "+" in text
