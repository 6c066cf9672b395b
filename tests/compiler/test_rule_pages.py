"""docs/diagnostics is what the rules say, and every page has what a person needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc.compiler import explain
from prlc.compiler.rule_pages import compatibility, files

FOLDER = Path(__file__).parents[2] / "docs" / "diagnostics"
PAGES = files()


def test_every_code_has_a_page_and_no_page_is_left_over() -> None:
    assert set(PAGES) == {"README.md", *(f"{code}.md" for code in explain.codes())}
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_current(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert text == PAGES[name], "python -m prlc.compiler.rule_pages docs/diagnostics"


@pytest.mark.parametrize("code", explain.codes())
def test_a_page_says_what_and_how_to_mend(code: str) -> None:
    page = PAGES[f"{code}.md"]
    assert page.startswith(f"# {code}: ")
    assert "Cure: " in page
    if any(rule.code == code for rule in explain.RULES):
        assert page.count("```yaml") == 2
        assert "- Inequality: `" in page
        assert "- Source: " in page


def test_the_index_lists_each_code_once() -> None:
    index = PAGES["README.md"]
    assert all(index.count(f"[{code}]") == 1 for code in explain.codes())
    assert "## Others" not in index


def test_the_table_of_features_is_current() -> None:
    text = (FOLDER.parent / "compatibility.md").read_text()
    assert text == compatibility(), "python -m prlc.compiler.rule_pages docs/diagnostics"
