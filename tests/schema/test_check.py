"""Mistakes in a document: each with its code, its line and its cure, all in one go."""

from __future__ import annotations

import pytest
from prlc.schema.check import check
from prlc.schema.diagnostics import Diagnostic
from prlc.schema.hardware import Cluster
from prlc.schema.run import RunSpec
from prlc.schema.topology import Topology

GOOD = """\
name: demo
model: tiny-moe
cluster: local-cpu
algorithm:
  batch_size: 64
  group_size: 8
  max_off_policy_steps: 4
sequence: {seq_len: 128}
workload:
  environment: {id: lookup}
  turns: {mean: 2, p95: 3}
  new_tokens_per_turn: {mean: 12}
  output_tokens_per_turn: {mean: 8}
  tool_time: {mean: 1ms}
trainer: {precision: fp32, optimizer: {lr: 1e-3}}
"""


def mistakes(*changes: tuple[str, str]) -> list[Diagnostic]:
    """What is found in the good spec after these changes."""
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    spec, found = check(RunSpec, text, "run.yaml")
    assert (spec is None) == bool(found)
    return found


def one(*changes: tuple[str, str]) -> Diagnostic:
    """The only finding; its underline must lie inside its line."""
    (found,) = mistakes(*changes)
    assert found.severity == "error"
    assert found.span is not None
    assert any(note.label == "help" and note.text for note in found.notes)
    return found


def place(found: Diagnostic) -> tuple[str, int, int, int]:
    assert found.span is not None
    return found.code, found.span.line, found.span.col, found.span.length


def help_of(found: Diagnostic) -> str:
    return next(note.text for note in found.notes if note.label == "help")


def test_a_good_spec_has_no_mistakes() -> None:
    spec, found = check(RunSpec, GOOD, "run.yaml")
    assert found == []
    assert spec is not None
    assert spec.trainer.optimizer.lr == 1e-3
    assert spec.workload.tool_time.mean == 0.001


def test_five_mistakes_give_five_diagnostics_in_line_order() -> None:
    found = mistakes(
        ("model: tiny-moe", "model: 5"),
        ("group_size: 8", "group_sise: 8"),
        ("seq_len: 128", "seq_len: 0"),
        ("{mean: 1ms}", "{mean: 5}"),
        ("precision: fp32", "precision: fp16"),
    )
    assert [place(d) for d in found] == [
        ("PRL104", 2, 8, 1),
        ("PRL102", 6, 3, 10),
        ("PRL107", 8, 21, 1),
        ("PRL105", 14, 21, 1),
        ("PRL104", 15, 22, 4),
    ]


def test_no_yaml() -> None:
    found = one(("{id: lookup}", "{id: lookup"))
    assert found.code == "PRL101"
    assert found.span is not None
    assert found.span.line in (10, 11)


def test_unknown_key_says_what_was_meant_and_what_is_known() -> None:
    found = one(("sequence: {seq_len: 128}", "sequence: {seq_len: 128, paddding: 1}"))
    assert place(found) == ("PRL102", 8, 26, 8)
    assert found.notes[-1].text == "keys of sequence: seq_len"
    close = one(("max_off_policy_steps: 4", "max_off_policy_steps: 4\n  max_stepz: 3"))
    assert place(close) == ("PRL102", 8, 3, 9)
    assert help_of(close) == "did you mean max_steps?"


def test_duplicate_key_names_both_lines() -> None:
    found = one(("trainer:", "model: other\ntrainer:"))
    assert place(found) == ("PRL103", 15, 1, 5)
    assert "lines 2 and 15" in found.message


def test_wrong_type() -> None:
    found = one(("mean: 12", "mean: [12]"))
    assert place(found) == ("PRL104", 12, 31, 4)
    assert found.label == "a list is not a number"
    assert help_of(found) == "mean takes a number"
    assert place(one(("batch_size: 64", "batch_size: true"))) == ("PRL104", 5, 15, 4)
    assert place(one(("batch_size: 64", "batch_size: 6.5"))) == ("PRL104", 5, 15, 3)
    assert place(one(("model: tiny-moe", "model:")))[:2] == ("PRL104", 2)


def test_wrong_choice_says_what_was_meant() -> None:
    found = one(("precision: fp32", "precision: fp23"))
    assert place(found) == ("PRL104", 15, 22, 4)
    assert help_of(found) == "did you mean fp32? precision may be fp32, bf16 or fp8"
    auto = one(("precision: fp32", "parallel: aut"))
    assert help_of(auto) == "did you mean auto? parallel takes a mapping or auto"
    yes = one(("group_size: 8", "group_size: 8\n  router_replay: yes"))
    assert help_of(yes) == "router_replay may be true, false or auto"


@pytest.mark.parametrize("value", ["5", "5 parsecs", "5GiB", "-5s", "[5]"])
def test_wrong_unit_shows_valid_forms(value: str) -> None:
    found = one(("{mean: 1ms}", f"{{mean: {value}}}"))
    assert place(found) == ("PRL105", 14, 21, len(value))
    assert "5min" in help_of(found)
    assert "ms" in help_of(found)


def test_unit_of_an_optional_value() -> None:
    assert place(one(("sequence:", "objective: {step_time: 300}\nsequence:"))) == ("PRL105", 8, 24, 3)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("1msec", ""), ("1day", "1d"), ("2 hours", "2h"), ("5m", "5min"), ("3 Seconds", "3s"), ("1MS", "1ms"), ("10", "")],
)
def test_a_time_in_other_words_is_recognised(said: str, meant: str) -> None:
    found = one(("tool_time: {mean: 1ms}", f"tool_time: {{mean: {said}}}"))
    assert found.code == "PRL105"
    assert help_of(found).startswith(f"did you mean {meant}? write" if meant else "write")


@pytest.mark.parametrize(("said", "meant"), [("32k", "32768"), ("1M", "1048576"), ("32 kB", "")])
def test_a_count_with_a_suffix_is_recognised(said: str, meant: str) -> None:
    found = one(("seq_len: 128", f"seq_len: {said}"))
    assert found.code == "PRL104"
    assert help_of(found) == (f"did you mean {meant}? " if meant else "") + "seq_len takes a whole number"


def test_missing_key_stands_at_its_parent_and_shows_a_line_to_paste() -> None:
    found = one(("  batch_size: 64\n", ""))
    assert place(found) == ("PRL106", 4, 1, len("algorithm"))
    assert help_of(found) == "add to algorithm: batch_size: 256"
    top = one(("cluster: local-cpu\n", ""))
    assert place(top) == ("PRL106", 1, 1, len("name: demo"))
    assert help_of(top) == "add this line: cluster: h200-28x8"


def test_every_pasted_line_is_right() -> None:
    """An empty document, mended with each of the lines that it is told to add, is complete."""
    spec, found = check(RunSpec, "", "run.yaml")
    assert spec is None
    assert {d.code for d in found} == {"PRL106"}
    text = "\n".join(help_of(d).removeprefix("add this line: ") for d in found)
    spec, found = check(RunSpec, text, "run.yaml")
    assert found == []
    assert spec is not None


def test_a_misspelt_required_key_is_one_mistake() -> None:
    assert place(one(("seq_len: 128", "seqlen: 128"))) == ("PRL102", 8, 12, 6)


def test_bounds_and_patterns() -> None:
    low = one(("group_size: 8", "group_size: 1"))
    assert place(low) == ("PRL107", 6, 15, 1)
    assert help_of(low) == "group_size must be at least 2"
    assert place(one(("name: demo", "name: a demo"))) == ("PRL107", 1, 7, 6)
    assert place(one(("lr: 1e-3", "lr: .nan"))) == ("PRL107", 15, 44, 4)
    assert place(one(("max_off_policy_steps: 4", "max_off_policy_steps: 4\n  max_inflight_groups: 0"))) == (
        "PRL107",
        8,
        24,
        1,
    )


def test_a_document_that_is_no_mapping() -> None:
    for text in ("- a\n", "5\n", "text\n"):
        spec, found = check(RunSpec, text, "run.yaml")
        assert spec is None
        assert [d.code for d in found] == ["PRL104"]


def test_lists_of_mappings_have_positions_too() -> None:
    text = """\
run: demo
nodes: 1
roles:
  - name: trainer
    kind: trainer
    endpoints:
      - {index: 0, node: 0, port: 70000}
    ready: file
    finishes: true
    gates:
      - {role: engine}
"""
    topology, found = check(Topology, text, "topology.yaml")
    assert topology is None
    assert [place(d)[:2] for d in found] == [("PRL107", 7), ("PRL106", 11)]
    assert "roles[0].endpoints[0].port" in found[0].message
    assert help_of(found[1]) == "add to roles[0].gates[0]: deadline: 5min"


def test_other_documents_are_checked_alike() -> None:
    text = "name: mine\nlauncher: slurm\nnodes: 2\nnode: {gpu: h200, gpus: 8, cpus: 96, memory: 2, nics: mlx5}\n"
    cluster, found = check(Cluster, text, "cluster.yaml")
    assert cluster is None
    assert [place(d) for d in found] == [
        ("PRL106", 4, 1, 4),
        ("PRL106", 4, 1, 4),
        ("PRL105", 4, 46, 1),
        ("PRL104", 4, 55, 4),
    ]
    assert "80GiB" in help_of(found[2])
