"""The JSON Schemas: written from the dataclasses, and at one with what the codec writes and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import prlc.schema.generate
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prlc.schema import codec
from prlc.schema.check import check
from prlc.schema.generate import DOCUMENTS, files, schema
from prlc.schema.positions import load
from prlc.schema.run import RunSpec

from tests.schema.instances import instances

FOLDER = Path(prlc.schema.generate.__file__).parent
EXAMPLES = sorted((FOLDER.parent / "examples").glob("*.yaml"))
FEW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(schema(name))


def test_the_files_are_what_the_dataclasses_give() -> None:
    there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.schema.json")}
    assert there == files(), "run: python -m prlc.schema.generate"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_is_a_valid_schema_with_descriptions_and_closed_objects(name: str) -> None:
    made = schema(name)
    jsonschema.Draft202012Validator.check_schema(made)
    for definition in [made, *made.get("$defs", {}).values()]:
        assert definition["additionalProperties"] is False
        assert definition["description"]
        assert all(prop["description"] for prop in definition["properties"].values())


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@FEW
def test_what_encode_writes_validates_and_reads_back(name: str, data: st.DataObject) -> None:
    instance = data.draw(instances(DOCUMENTS[name]))
    plain = codec.encode(instance)
    validator(name).validate(plain)
    assert codec.decode(DOCUMENTS[name], plain) == instance
    again, found = check(DOCUMENTS[name], codec.dump(instance), "dumped.yaml")
    assert not found
    assert again == instance


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_validate_as_written(path: Path) -> None:
    text = path.read_text("utf-8")
    validator("run").validate(load(text, path.name).data)
    spec, found = check(RunSpec, text, path.name)
    assert found == []
    validator("run").validate(codec.encode(spec))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zap", 1),
        ("sequence", {"seq_len": 0}),
        ("sequence", {}),
        ("name", "a b"),
        ("objective", {"step_time": 300}),
        ("objective", {"step_time": "5 weeks"}),
        ("target", "cloud"),
        ("nodes", "many"),
    ],
)
def test_schema_and_codec_refuse_alike(key: str, value: Any) -> None:
    good = yaml.safe_load(EXAMPLES[0].read_text("utf-8"))
    assert not list(validator("run").iter_errors(good))
    bad = {**good, key: value}
    assert list(validator("run").iter_errors(bad))
    with pytest.raises(codec.DocumentError):
        codec.decode(RunSpec, bad)


def test_quantities_are_strings_with_a_unit() -> None:
    memory = schema("gpu")["properties"]["memory"]
    assert memory["type"] == "string"
    assert memory["x-unit"] == "bytes"
    assert schema("run")["properties"]["nodes"]["anyOf"] == [{"type": "integer"}, {"const": "auto"}]
