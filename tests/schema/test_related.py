"""A finding with a second place: as text, as JSON, as an annotation and as SARIF 2.1.0."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from prlc.compiler.plan import plan
from prlc.compiler.rules.example import spec_text
from prlc.schema.diagnostics import Diagnostic, Note, Related, Span, render_text, to_github, to_json, to_sarif

SPEC = "name: a\n\ttrainer: {ep: 12}\n"
FOUND = Diagnostic(
    code="PRL314",
    severity="error",
    message="12 ranks cannot share 256 experts",
    span=Span("run.yaml", 2, 16, 2),
    label="256 % 12 = 4",
    notes=(Note("help", "ep: 8"),),
    related=(Related(Span("catalog/models/a b.yaml", 120, 5, 3), "    256", "256 experts"),),
)
# what OASIS SARIF 2.1.0 (section 3) wants of a log, of the parts that are written here
URI = {"type": "string", "pattern": r"^[^\s\\]+$"}
REGION = {
    "type": "object",
    "required": ["startLine"],
    "properties": {key: {"type": "integer", "minimum": 1} for key in ("startLine", "startColumn", "endColumn")},
    "additionalProperties": False,
}
PLACE = {
    "type": "object",
    "required": ["artifactLocation", "region"],
    "properties": {
        "artifactLocation": {"type": "object", "required": ["uri"], "properties": {"uri": URI}},
        "region": REGION,
    },
    "additionalProperties": False,
}
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {"help": MESSAGE},
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "level"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": MESSAGE,
                                "locations": {
                                    "type": "array",
                                    "items": {"type": "object", "properties": {"physicalLocation": PLACE}},
                                },
                                "relatedLocations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "properties": {"id": {"type": "integer"}, "physicalLocation": PLACE},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def specs() -> list[tuple[str, list[Diagnostic]]]:
    broken = [
        {"algorithm": {"batch_size": 130}},
        {"model": "glm-5.1", "cluster": "h200-28x8", "trainer": {"parallel": {"ep": 12}}},
        {"inference": {"tensor_parallel": 3}},
        {"workload": {"environment": {"id": "swe"}}},
    ]
    return [(text, plan(text, "my runs/run.yaml")[1]) for text in map(spec_text, broken)]


def test_text_has_both_places_with_their_lines() -> None:
    text = render_text([FOUND], {"run.yaml": SPEC})
    assert text == (
        "error[PRL314]: 12 ranks cannot share 256 experts\n"
        "   --> run.yaml:2:16\n"
        "    |\n"
        "  2 | \ttrainer: {ep: 12}\n"
        "    | \t              ^^ 256 % 12 = 4\n"
        "    |\n"
        "   ::: catalog/models/a b.yaml:120:5\n"
        "    |\n"
        "120 |     256\n"
        "    |     --- 256 experts\n"
        "    |\n"
        "    = help: ep: 8\n"
    )


def test_machines_get_both_places() -> None:
    (plain,) = json.loads(to_json([FOUND]))
    assert plain["related"] == [
        {"file": "catalog/models/a b.yaml", "line": 120, "column": 5, "length": 3, "label": "256 experts"}
    ]
    assert "see catalog/models/a b.yaml:120:5: 256 experts" in to_github([FOUND])
    (result,) = json.loads(to_sarif([FOUND]))["runs"][0]["results"]
    assert result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "catalog/models/a%20b.yaml"


@pytest.mark.parametrize("found", [[], [FOUND], *(found for _, found in specs())])
def test_sarif_has_the_structure_of_its_standard(found: list[Diagnostic]) -> None:
    log = json.loads(to_sarif(found))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    assert len(run["results"]) == len(found)
    assert {r["ruleId"] for r in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_a_rule_on_the_model_shows_the_models_own_line() -> None:
    _, found = specs()[1]
    (wrong,) = [d for d in found if d.code == "PRL314"]
    (place,) = wrong.related
    assert place.span.file == "catalog/models/glm-5.1.yaml"
    text = (Path(__file__).parents[2] / place.span.file).read_text().splitlines()
    assert text[place.span.line - 1] == place.line
    assert place.line.strip() == "n_routed_experts: 256"


def test_a_rule_on_the_cluster_shows_the_clusters_own_line() -> None:
    _, found = specs()[2]
    (wrong,) = [d for d in found if d.code == "PRL321"]
    assert wrong.related[0].line.strip() == "gpus: 8"
