"""What a help line says: it names what is wrong alone, can be followed, and no two of them disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prlc.compiler.plan import plan
from prlc.compiler.resolve import resolve
from prlc.compiler.rules import LAYOUT_RULES, SPEC_RULES
from prlc.compiler.rules.example import adjusted, layout_of, spec_text
from prlc.schema.diagnostics import Diagnostic

GLM = {"model": "glm-5.1", "cluster": "h200-28x8"}


def of_spec(code: str, part: Mapping[str, Any]) -> list[Diagnostic]:
    resolved, found = resolve(spec_text(part), "run.yaml")
    assert resolved is not None, found
    return [d for rule in SPEC_RULES if rule.code == code for d in rule(resolved)]


def of_layout(code: str, part: Mapping[str, Any]) -> list[Diagnostic]:
    resolved, found = resolve(spec_text(part.get("spec", {})), "run.yaml")
    assert resolved is not None, found
    return [d for rule in LAYOUT_RULES if rule.code == code for d in rule(adjusted(resolved, part), *layout_of(part))]


def planned(part: Mapping[str, Any]) -> list[Diagnostic]:
    return plan(spec_text(part), "run.yaml")[1]


def cure(diagnostic: Diagnostic) -> str:
    (text,) = [note.text for note in diagnostic.notes if note.label == "help"]
    return text


def marked(diagnostic: Diagnostic, part: Mapping[str, Any]) -> str:
    span = diagnostic.span
    assert span is not None
    return spec_text(part).splitlines()[span.line - 1][span.col - 1 : span.col - 1 + span.length]


def test_the_trainer_names_only_what_it_cannot_run() -> None:
    part: dict[str, Any] = {**GLM, "trainer": {"precision": "fp8"}}
    (found,) = of_layout("PRL371", {"spec": part})
    assert "fp8 training" in found.message
    assert cure(found) == "trainer.precision: bf16"
    assert marked(found, part) == "fp8"
    mesh, number = of_layout("PRL371", {"spec": {"trainer": {"precision": "fp8"}}, "trainer": {"cp": 6}})
    assert cure(mesh) == "trainer.parallel: {cp: 4}"
    assert cure(number) == "trainer.precision: bf16"


@pytest.mark.parametrize(
    ("name", "help"), [("looku", "did you mean lookup?"), ("swe", "to run: id: lookup, or id: verifiers:swe")]
)
def test_a_misspelt_environment_is_recognised(name: str, help: str) -> None:
    (found,) = of_spec("PRL372", {"workload": {"environment": {"id": name}}})
    assert cure(found) == help


def test_an_unknown_argument_is_marked_at_its_name() -> None:
    part = {"workload": {"environment": {"id": "lookup", "args": {"key": 32}}}}
    (found,) = of_spec("PRL373", part)
    assert marked(found, part) == "key"


@pytest.mark.parametrize("code", [rule.code for rule in SPEC_RULES])
def test_an_example_breaks_no_second_rule_by_accident(code: str) -> None:
    rule = next(rule for rule in SPEC_RULES if rule.code == code)
    assert "PRL373" not in {d.code for d in planned(rule.refused)} - {code}


@pytest.mark.parametrize(
    ("value", "help"),
    [
        ("gpu debug", "partition: gpu,debug"),
        ("gpu; rm -rf /", "partition: gpu"),
        ("gpu,rm,-rf", "partition: gpu"),
        ("-n4", "leave slurm.partition out, or give it a plain name"),
        ("gpu,", "partition: gpu"),
        ("gpu;id", "partition: gpu"),
        ("", "leave slurm.partition out, or give it a plain name"),
    ],
)
def test_names_for_slurm_are_plain_and_their_cure_is_taken(value: str, help: str) -> None:
    (found,) = of_spec("PRL362", {"slurm": {"partition": value}})
    assert cure(found) == help
    key, _, mended = help.partition(": ")
    assert key != "partition" or of_spec("PRL362", {"slurm": {key: mended}}) == []


def test_lists_of_nodes_and_features_are_plain() -> None:
    for key, value in (("exclude", "node[001-028,030],n7"), ("constraint", "[rack1*2&a100|rack2]")):
        assert of_spec("PRL362", {"slurm": {key: value}}) == []
    for key, value in (("exclude", "n1,--wrap=id"), ("constraint", "a;b"), ("exclude", "-x")):
        assert len(of_spec("PRL362", {"slurm": {key: value}})) == 1


def test_slurm_options_without_slurm_are_one_finding() -> None:
    part = {"cluster": "local-cpu", "model": "tiny-moe", "slurm": {"partition": "gpu", "account": "rl", "time": "24h"}}
    (found,) = of_spec("PRL363", part)
    assert marked(found, part) == "slurm"


def test_swapped_spreads_are_said_the_right_way_round() -> None:
    for spread, help in (
        ({"turns": {"mean": 200, "p95": 60}}, "turns: {mean: 60, p95: 200} if"),
        ({"tool_time": {"mean": "3s", "p95": "500ms"}}, "tool_time: {mean: 500ms, p95: 3s} if"),
    ):
        (found,) = of_spec("PRL307", {"workload": spread})
        assert cure(found).startswith(help)
