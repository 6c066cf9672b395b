"""What a spec names is found, or reported where it stands."""

from pathlib import Path

import pytest
from prlc import catalog
from prlc.compiler.resolve import resolve
from prlc.compiler.rules.example import BASE, spec_text
from prlc.schema.codec import dump


def test_everything_that_is_named_is_found() -> None:
    found, diagnostics = resolve(spec_text({}), "run.yaml")
    assert found is not None
    assert diagnostics == []
    assert (found.model.name, found.cluster.name, found.gpu.name) == ("qwen3-30b-a3b", "h200-1x8", "h200")
    assert found.facts.num_experts == 128


@pytest.mark.parametrize(
    ("key", "value", "code", "near"),
    [("model", "qwen3-30b-a3", "PRL201", "qwen3-30b-a3b"), ("cluster", "h200-1x9", "PRL202", "h200-1x8")],
)
def test_unknown_name_is_refused_with_the_closest(key: str, value: str, code: str, near: str) -> None:
    text = spec_text({key: value})
    found, (diagnostic,) = resolve(text, "run.yaml")
    assert found is None
    assert diagnostic.code == code
    assert diagnostic.span is not None
    line = text.splitlines()[diagnostic.span.line - 1]
    assert line[diagnostic.span.col - 1 :][: diagnostic.span.length] == value
    assert near in diagnostic.notes[0].text


def test_unknown_gpu_of_a_cluster_file(tmp_path: Path) -> None:
    text = dump(catalog.cluster("h200-1x8")).replace("gpu: h200", "gpu: h2000")
    (tmp_path / "mine.yaml").write_text(text)
    found, (diagnostic,) = resolve(spec_text({"cluster": "mine.yaml"}), str(tmp_path / "run.yaml"))
    assert found is None
    assert diagnostic.code == "PRL203"
    assert "h200" in diagnostic.notes[0].text


def test_paths_are_relative_to_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text(dump(catalog.cluster("local-cpu")))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found, diagnostics = resolve(spec_text({"cluster": "clusters/mine.yaml"}), "../run.yaml")
    assert found is not None, diagnostics
    assert found.gpu.device == "cpu"


def test_names_are_looked_up_even_where_keys_are_wrong() -> None:
    found, diagnostics = resolve(spec_text({"model": "no-such", "nonsense": 1}), "run.yaml")
    assert found is None
    assert {d.code for d in diagnostics} == {"PRL102", "PRL201"}


def test_span_of_an_absent_value_is_that_of_what_would_hold_it() -> None:
    found, _ = resolve(spec_text({}), "run.yaml")
    assert found is not None
    assert found.span(("trainer", "parallel", "ep")) == found.span(("trainer",))
    assert found.span(("slurm", "partition")) is None
    assert BASE["name"] == "example"
