"""How diagnostics are printed: for people as rustc does, for machines as JSON, GitHub and SARIF."""

from __future__ import annotations

import json
import re

from prlc.schema.diagnostics import Diagnostic, Note, Span, render_text, to_github, to_json, to_sarif

SOURCE = "\n" * 20 + "  parallel: {cp: 4, ep: 12}\n"
EP = Diagnostic(
    code="PRL314",
    severity="error",
    message="12 expert-parallel ranks cannot share 256 experts",
    span=Span("run.yaml", 21, 21, 6),
    label="256 % 12 = 4, must be 0",
    notes=(
        Note("rule", "num_experts % ep == 0"),
        Note("help", "ep: 8 fits\nep: 16 fits too"),
        Note("more", "prlc explain PRL314"),
    ),
)
BARE = Diagnostic(code="PRL602", severity="warning", message="100% extrapolated, see: docs")
EXPECTED = """\
error[PRL314]: 12 expert-parallel ranks cannot share 256 experts
  --> run.yaml:21:21
   |
21 |   parallel: {cp: 4, ep: 12}
   |                     ^^^^^^ 256 % 12 = 4, must be 0
   |
   = rule: num_experts % ep == 0
   = help: ep: 8 fits
           ep: 16 fits too
   = more: prlc explain PRL314

warning[PRL602]: 100% extrapolated, see: docs
"""


def test_text_is_that_of_the_design() -> None:
    assert render_text([EP, BARE], {"run.yaml": SOURCE}) == EXPECTED


def test_colour_adds_nothing_but_colour() -> None:
    coloured = render_text([EP, BARE], {"run.yaml": SOURCE}, color=True)
    assert coloured != EXPECTED
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == EXPECTED


def test_without_the_source_the_place_is_still_named() -> None:
    text = render_text([EP], {})
    assert "--> run.yaml:21:21" in text
    assert "^" not in text
    assert "= more: prlc explain PRL314" in text


def test_tabs_before_the_place_keep_the_underline_below_it() -> None:
    found = Diagnostic("PRL101", "error", "tab", Span("f", 1, 3, 1))
    assert "1 | \tab\n  | \t ^\n" in render_text([found], {"f": "\tab\n"})


def test_no_diagnostics_give_no_text() -> None:
    assert render_text([], {}) == ""
    assert to_github([]) == ""
    assert json.loads(to_json([])) == []


def test_json() -> None:
    first, second = json.loads(to_json([EP, BARE]))
    assert (first["code"], first["file"], first["line"], first["column"], first["length"]) == (
        "PRL314",
        "run.yaml",
        21,
        21,
        6,
    )
    assert first["notes"][0] == {"label": "rule", "text": "num_experts % ep == 0"}
    assert second["file"] is None
    assert second["severity"] == "warning"


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    first, second = to_github([EP, BARE]).splitlines()
    assert first.startswith("::error file=run.yaml,line=21,col=21,endColumn=27,title=PRL314::12 expert-parallel")
    assert "256 %25 12 = 4" in first
    assert "%0Ahelp: ep: 8 fits%0Aep: 16" in first
    assert second == "::warning title=PRL602::100%25 extrapolated, see: docs"
    odd = Diagnostic("PRL101", "error", "m", Span("a,b:c.yaml", 1, 1, 1))
    assert "file=a%2Cb%3Ac.yaml," in to_github([odd])


def test_sarif() -> None:
    log = json.loads(to_sarif([EP, BARE]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["PRL314", "PRL602"]
    first, second = run["results"]
    assert first["level"] == "error"
    where = first["locations"][0]["physicalLocation"]
    assert where["artifactLocation"] == {"uri": "run.yaml"}
    assert where["region"] == {"startLine": 21, "startColumn": 21, "endColumn": 27}
    assert "ep: 8 fits" in first["message"]["text"]
    assert "locations" not in second
