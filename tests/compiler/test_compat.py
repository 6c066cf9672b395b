"""The table of features: valid, complete, with a source a row, and of the versions that the release pins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from prlc.catalog import CatalogError
from prlc.catalog.compat import applies, compat, in_range, read
from prlc.compiler.compat import active, path_of, speaking
from prlc.compiler.resolve import resolve
from prlc.compiler.rules.example import layout_of, spec_text
from prlc.schema.run import RunSpec

ROOT = Path(__file__).parents[2]
TABLE = compat()


def test_the_stack_is_what_the_release_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = dict(line.split("==") for line in project["cuda"] if "==" in line)
    assert {name: pinned[name] for name in TABLE.stack} == TABLE.stack


def test_every_row_has_words_and_a_source() -> None:
    assert len(TABLE.rows) >= 40
    for row in TABLE.rows:
        assert row.reason.endswith("."), row.id
        assert len(row.source) > 10, row.id
    assert {row.verdict for row in TABLE.rows} == {"works", "works_if", "refused", "unknown"}


def test_every_feature_that_a_spec_can_ask_for_can_be_seen() -> None:
    found, diagnostics = resolve(spec_text({}), "run.yaml")
    assert found is not None, diagnostics
    source = (ROOT / "compiler" / "compat.py").read_text()
    seen = set(re.findall(r'^        "([a-z0-9_]+)": ', source, re.M))
    assert {f.name for f in TABLE.features if f.path} == seen
    assert active(found, layout_of({})[0]) <= seen


def test_every_feature_points_at_a_key_of_the_spec() -> None:
    for feature in TABLE.features:
        kind: object = RunSpec
        for key in feature.path.split(".") if feature.path else ():
            if feature.path.startswith("trainer.parallel."):
                break
            hints = __import__("typing").get_type_hints(kind)
            assert key in hints, feature.path
            kind = hints[key]


def test_a_feature_that_no_row_names_is_dead() -> None:
    named = {name for row in TABLE.rows for name in (*row.features, *row.needs)}
    assert {f.name for f in TABLE.features} - named <= {"router_direct", "slurm", "local", "trainer_experts"}


@pytest.mark.parametrize(
    ("version", "wanted", "there"),
    [
        ("0.32.0", ">=0.32,<0.34", True),
        ("0.34.0", ">=0.32,<0.34", False),
        ("0.3.13.post1", "==0.3.13", True),
        ("2.13.0", "<2.15", True),
        ("2.13.0+cpu", ">2.13", False),
    ],
)
def test_ranges(version: str, wanted: str, there: bool) -> None:
    assert in_range(version, wanted) is there


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("features: [router_replay, kv_point_to_point]", "features: [router_reply]", "no feature 'router_reply'"),
        ("verdict: works\n", "verdict: works\n  probe: x\n", "works_if"),
        ("verdict: refused", "verdict: maybe", "not valid"),
        ('versions: {vllm: ">=0.32,<0.34"}', 'versions: {sglang: ">=1"}', "no version of sglang"),
        ('versions: {vllm: ">=0.32,<0.34"}', 'versions: {vllm: "new"}', "no range"),
        ("- id: replay-store-together", "- id: replay-point-to-point", "two rows"),
    ],
)
def test_a_wrong_row_is_refused_by_name(old: str, new: str, says: str) -> None:
    text = (ROOT / "catalog" / "compat.yaml").read_text()
    assert old in text
    with pytest.raises(CatalogError) as raised:
        read(text.replace(old, new, 1))
    assert says in f"{raised.value.message} {raised.value.help}"


def test_a_row_of_another_version_is_silent() -> None:
    row = next(r for r in TABLE.rows if r.id == "replay-point-to-point")
    assert applies(row, TABLE.stack)
    assert not applies(row, {**TABLE.stack, "vllm": "0.40.0"})


def test_a_finding_points_at_what_the_spec_says() -> None:
    found, diagnostics = resolve(spec_text({"inference": {"kv_offload": "mooncake"}}), "run.yaml")
    assert found is not None, diagnostics
    layout, _ = layout_of({"store": {"segment_bytes": 2**40}})
    rows = {row.id: row for row, _ in speaking(found, layout)}
    assert "replay-store-together" in rows
    assert path_of(rows["replay-store-together"], found) == ("inference", "kv_offload")
