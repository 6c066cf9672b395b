"""YAML with positions: what scalars mean, where keys and values stand, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from prlc.schema.diagnostics import Span
from prlc.schema.positions import MAX_NODES, load

TEXT = """\
name: demo   # a comment
trainer: {lr: 1e-6, parallel: {cp: 4, ep: 12}}
roles:
  - name: "a b"
    gates: []
  - plain
"""


def underlined(span: Span, text: str = TEXT) -> str:
    return text.splitlines()[span.line - 1][span.col - 1 : span.col - 1 + span.length]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E3", 1e3),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", float("inf")),
        ("12", 12),
        ("012", 12),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("yes", "yes"),
        ("no", "no"),
        ("On", "On"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("'null'", "null"),
        ("5min", "5min"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = load(f"key: {text}\n", "f")
    assert found.error is None
    assert found.data["key"] == value
    assert type(found.data["key"]) is type(value)


def test_json_is_read_too() -> None:
    assert load('{"a": [1, 2.5e-8, null, true], "b": {"c": "d"}}', "f").data == {
        "a": [1, 2.5e-8, None, True],
        "b": {"c": "d"},
    }


def test_every_key_and_value_has_its_place() -> None:
    found = load(TEXT, "f")
    assert found.data["trainer"]["parallel"] == {"cp": 4, "ep": 12}
    values = {path: underlined(span) for path, span in found.value_spans.items()}
    assert values[("name",)] == "demo"
    assert values[("trainer", "lr")] == "1e-6"
    assert values[("trainer", "parallel")] == "{cp: 4, ep: 12}"
    assert values[("trainer", "parallel", "ep")] == "12"
    assert values[("roles", 0, "name")] == '"a b"'
    assert values[("roles", 0, "gates")] == "[]"
    assert values[("roles", 1)] == "plain"
    keys = {path: underlined(span) for path, span in found.key_spans.items()}
    assert keys[("trainer", "parallel", "ep")] == "ep"
    assert keys[("roles", 0, "gates")] == "gates"
    assert {path[-1] for path in keys} == set(keys.values())


def test_positions_count_characters_not_bytes() -> None:
    text = "a: {ü: é, b: 日本, c: x}\n"
    found = load(text, "f")
    assert underlined(found.value_spans[("a", "c")], text) == "x"
    assert underlined(found.value_spans[("a", "b")], text) == "日本"


def test_duplicate_keys_are_collected_and_the_later_value_counts() -> None:
    found = load("a: 1\nb: {c: 1, c: 2}\na: 3\n", "f")
    assert found.data == {"a": 3, "b": {"c": 2}}
    assert [(d.path, d.first.line, d.second.line) for d in found.duplicates] == [
        (("b", "c"), 2, 2),
        (("a",), 1, 3),
    ]
    assert found.duplicates[0].second.col == 11


def test_aliases_are_followed() -> None:
    found = load("a: &x {b: 1}\nc: *x\n", "f")
    assert found.data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [1,\n", 1, "did not find expected node content"),
        ("x: 1\na: b: c\n", 2, "mapping values are not allowed"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("a: *nothing\n", 1, "undefined alias"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: 1\nb: &x {c: *x}\n", 2, "inside its own anchor"),
        ("a: 1\nb: !!python/object:os.system {}\n", 2, "not known here"),
        ("a: 1\nb: !!int x\n", 2, "is no !!int"),
        ("? {a: 1}\n: 2\n", 1, "plain word"),
        ("a: 1\nb: \x01\n", 2, "control characters"),
        ("[" * 3000, 1, "nesting"),
        (f"a: {'1' * 5000}\n", 1, "300 digits"),
    ],
)
def test_faults_have_a_line(text: str, line: int, message: str) -> None:
    found = load(text, "f")
    assert found.data is None
    assert found.error is not None
    assert message in found.error.message
    assert found.error.span.line == line
    assert found.error.span.col >= 1


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    found = load("\n".join(lines), "f")
    assert found.error is not None
    assert str(MAX_NODES) in found.error.message


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n"])
def test_an_empty_text_is_null(text: str) -> None:
    found = load(text, "f")
    assert found.error is None
    assert found.data is None
