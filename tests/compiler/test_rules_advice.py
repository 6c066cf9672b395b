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


def test_a_length_of_a_model_is_not_advised_beyond_the_model() -> None:
    turns = {"new_tokens_per_turn": {"mean": 300}, "output_tokens_per_turn": {"mean": 600}}
    for mean, help in (
        (20, "seq_len: 27000 or more, or a smaller workload.turns"),
        (40, "seq_len: 40960, the most that the model takes, or a smaller workload.turns"),
        (400, "fewer or shorter turns in workload: the model takes 40960 tokens at most"),
    ):
        (found,) = of_spec("PRL304", {"sequence": {"seq_len": 4096}, "workload": {"turns": {"mean": mean}, **turns}})
        assert cure(found) == help


def test_a_degree_that_has_to_go_bends_nothing_else() -> None:
    part = {**GLM, "sequence": {"seq_len": 131072}, "trainer": {"parallel": {"ep": 12, "cp": 3}}}
    found = {d.code: d for d in planned(part)}
    assert {"PRL314", "PRL317"} <= set(found)
    assert "PRL316" not in found
    assert cure(found["PRL314"]) == "ep that fits: 2, 4, 8, 16"


def test_one_bound_is_advised_and_it_suits_all() -> None:
    part: dict[str, Any] = {
        "objective": {"step_time": "1min"},
        "algorithm": {"batch_size": 128, "group_size": 8, "max_off_policy_steps": 1, "max_inflight_groups": 64},
        "workload": {"turns": {"mean": 8, "p95": 60}, "tool_time": {"mean": "30s"}},
    }
    stale = {"PRL351", "PRL352", "PRL354"}
    (found,) = [d for d in planned(part) if d.code in stale]
    key, _, value = cure(found).partition(",")[0].partition(": ")
    part["algorithm"][key] = int(value)
    assert stale & {d.code for d in planned(part)} == set()


def test_one_fault_is_reported_once() -> None:
    part = {
        "model": "glm-4.5-air", "cluster": "h200-28x8", "nodes": 8, "algorithm": {"router_replay": True},
        "inference": {"disaggregate": True, "kv_offload": "none"},
    }  # fmt: skip
    assert [d.code for d in planned(part) if d.severity == "error"] == ["PRL342"]


def test_a_machine_that_is_too_small_is_one_finding() -> None:
    found = planned({"cluster": "local-cpu", "inference": {"tensor_parallel": 2}})
    (error,) = [d for d in found if d.severity == "error"]
    assert error.code == "PRL402"
    assert error.message.startswith("qwen3-30b-a3b needs about ")
    assert error.message.endswith("GiB on a node; local-cpu has 24 GiB")
    assert not {d.code for d in found} & {"PRL330", "PRL403", "PRL602"}


def test_only_widths_that_a_cluster_can_keep_are_advised() -> None:
    (found,) = of_spec("PRL321", {"inference": {"tensor_parallel": 3}})
    assert found.message == "tensor_parallel 3 must divide both the 8 GPUs of a node and the 32 heads"
    assert cure(found) == "tensor_parallel: 1 or 2 or 4 or 8, or auto"
    (found,) = of_spec("PRL321", {"cluster": "local-cpu", "inference": {"tensor_parallel": 3}})
    assert cure(found) == "tensor_parallel: 1, or auto"


def nothing_fits(part: Mapping[str, Any]) -> Diagnostic:
    (found,) = [d for d in planned(part) if d.code == "PRL400"]
    assert [note.label for note in found.notes][-1] == "more"
    return found


def test_the_fewest_nodes_are_named_and_are_enough() -> None:
    part = {**GLM, "nodes": 4, "trainer": {"precision": "fp8"}, "inference": {"precision": "fp8"}}
    found = nothing_fits(part)
    assert marked(found, part) == "4"
    least = int(cure(found).removeprefix("nodes: at least ").split(";")[0].split(",")[0])
    assert least > 4
    assert "PRL400" in {d.code for d in planned({**part, "nodes": least - 1})}
    assert "PRL400" not in {d.code for d in planned({**part, "nodes": least})}


def test_a_cluster_that_is_too_small_is_told_how_many_nodes_would_do() -> None:
    found = nothing_fits({"model": "glm-5.1", "cluster": "h200-1x8"})
    assert cure(found).startswith("a cluster of at least ")
    assert cure(found).endswith(" such nodes")


def test_the_held_value_that_stands_in_the_way_is_named() -> None:
    part: dict[str, Any] = {
        **GLM,
        "sequence": {"seq_len": 131072},
        "trainer": {"precision": "fp8", "parallel": {"cp": 2, "ep": 8}},
        "inference": {"precision": "fp8"},
    }
    found = nothing_fits(part)
    assert cure(found) == "trainer.parallel.cp: auto"
    assert marked(found, part) == "2"
    part["trainer"]["parallel"]["cp"] = "auto"
    assert "PRL400" not in {d.code for d in planned(part)}


def test_values_that_stand_in_the_way_together_are_all_named() -> None:
    parallel = {"cp": 1, "ep": 1}
    part: dict[str, Any] = {
        **GLM,
        "sequence": {"seq_len": 196608},
        "trainer": {"precision": "fp8", "parallel": parallel, "activation_checkpoint": "none"},
        "inference": {"precision": "fp8"},
    }
    found = nothing_fits(part)
    names = "trainer.parallel.cp, trainer.parallel.ep, trainer.activation_checkpoint"
    assert cure(found) == f"auto for {names}"
    part["trainer"] = {"precision": "fp8"}
    assert "PRL400" not in {d.code for d in planned(part)}
    part["cluster"], part["trainer"] = "h200-1x8", {"precision": "fp8", "parallel": parallel}
    assert cure(nothing_fits(part)).startswith("auto for trainer.parallel.cp, trainer.parallel.ep, and a cluster of ")


def test_what_nothing_mends_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prlc.compiler.plan.ways_out", lambda _: ())
    assert cure(nothing_fits({"model": "glm-5.1", "cluster": "h200-1x8"})).startswith("a smaller model, or GPUs with")


def test_words_of_small_findings() -> None:
    (found,) = of_spec("PRL353", {"algorithm": {"batch_size": 128, "group_size": 8, "max_inflight_groups": 4}})
    assert found.message == "4 groups in flight are 32 rollouts, and a batch has 128"
    (found,) = of_spec("PRL322", {"cluster": "h200-28x8", "trainer": {"nodes": 28}})
    assert cure(found) == "trainer.nodes: 27, the most that the trainer can have, or trainer.nodes: auto"
    (found,) = of_layout("PRL803", {"spec": {"model": "gpt-oss-20b"}, "layout": {"router_replay": True}})
    assert found.message.startswith("nobody has shown router_replay and gpt_oss together: ")
