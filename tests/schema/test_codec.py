"""Documents as files: what is written reads back, and a wrong file names all of its problems."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prlc.schema import codec
from prlc.schema.run import RunSpec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example() -> RunSpec:
    return codec.load(RunSpec, EXAMPLES / "tiny-moe-cpu.yaml")


def test_a_file_reads_back_and_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    spec = replace(example(), model="1e-6", cluster="yes", checkpoint="0o17")
    text = codec.dump(spec)
    (tmp_path / "run.yaml").write_text(text, "utf-8")
    again = codec.load(RunSpec, tmp_path / "run.yaml")
    assert again == spec
    assert codec.dump(again) == text


def test_floats_need_no_dot(tmp_path: Path) -> None:
    text = (EXAMPLES / "tiny-moe-cpu.yaml").read_text("utf-8")
    changed = re.sub(r"\blr: [^,}\s]+", "lr: 1e-6", text)
    assert changed != text
    (tmp_path / "run.yaml").write_text(changed, "utf-8")
    assert codec.load(RunSpec, tmp_path / "run.yaml").trainer.optimizer.lr == 1e-6


def test_all_problems_come_at_once_with_their_kinds() -> None:
    data = codec.encode(example())
    del data["model"]
    data |= {"zap": 1, "name": "a b", "sequence": {"seq_len": "x"}, "target": "cloud"}
    data["workload"]["tool_time"]["mean"] = 5
    with pytest.raises(codec.DocumentError) as caught:
        codec.decode(RunSpec, data, "run.yaml")
    assert {(".".join(map(str, p.path)), p.kind) for p in caught.value.problems} == {
        ("zap", "unknown"),
        ("name", "bound"),
        ("model", "missing"),
        ("sequence.seq_len", "type"),
        ("target", "choice"),
        ("workload.tool_time.mean", "unit"),
    }
    assert str(caught.value).count("run.yaml: ") == 6


def test_a_file_that_is_no_yaml_says_its_line(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: a\nmodel: [\n", "utf-8")
    with pytest.raises(codec.DocumentError, match="line 2"):
        codec.load(RunSpec, tmp_path / "run.yaml")
