"""`prlc build --validate` and `prlc check` as people and hooks use them."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prlc.compiler.bundle.validate import arguments, report, validate
from prlc.compiler.cli import main
from prlc.compiler.rules.example import spec_text

from tests.faults.plans import launches, plans

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "tiny-moe-cpu.yaml"


def test_without_the_programs_the_saved_flags_judge_and_say_so(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\ncat >/dev/null\nexit 3\n")
    bare.chmod(0o755)
    verdicts = validate(plans()["store"], bare)
    assert {v.program for v in verdicts} == {"vllm serve", "vllm-router", "mooncake_master", "torchrun"}
    assert all(v.wrong == () for v in verdicts)
    said = report(verdicts)
    assert re.search(r"vllm serve: \d+ commands, fine \(saved flags of vllm 0.32.0; it is not installed at", said)
    assert "mooncake_master: 1 commands, fine (saved flags of mooncake-transfer-engine" in said


def test_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    verdicts = validate(plans()["dense"], tmp_path / "none")
    assert "could not be asked" in report(verdicts)


def test_a_flag_that_a_program_lacks_is_refused(tmp_path: Path) -> None:
    made = plans()["dense"]
    wrong = tuple(
        dataclasses.replace(launch, flags=(*launch.flags, ("--no-such-flag", "1")))
        if launch.role == "engine"
        else launch
        for launch in made.launches
    )
    bad = validate(dataclasses.replace(made, launches=wrong), tmp_path / "none")
    assert any("no flag --no-such-flag" in text for verdict in bad for text in verdict.wrong)


def test_arguments_have_no_placeholder_left() -> None:
    for _, launch in launches():
        for word in arguments(launch, 0):
            if not word.startswith("{"):  # JSON
                assert "{NODE_" not in word
                assert "{PORT}" not in word


@pytest.mark.runtime
def test_the_real_parsers_take_every_command() -> None:
    for name in ("fp8", "store", "tiny-moe-cpu"):
        for verdict in validate(plans()[name], Path(sys.executable)):
            assert verdict.wrong == (), (name, verdict)
            if verdict.program != "mooncake_master":
                assert "the parser of version" in verdict.judge, verdict


def test_build_validates_before_it_writes(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["build", str(TINY), "-o", str(tmp_path / "b"), "--validate", "--python", str(tmp_path / "none")]
    )
    assert done.exit_code == 0, done.output
    assert "vllm serve: 1 commands, fine" in done.stderr
    assert (tmp_path / "b" / "manifest.json").is_file()


def test_a_plan_with_a_placeholder_that_nothing_fills_is_wrong_usage(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(main, ["build", str(TINY), "-o", str(tmp_path / "b")]).exit_code == 0
    data = json.loads((tmp_path / "b" / "plan.json").read_text())
    data["launches"][0]["flags"].append(["--x", "{NO_SUCH_TABLE}"])
    (tmp_path / "plan.json").write_text(json.dumps(data))
    done = runner.invoke(main, ["build", "--plan", str(tmp_path / "plan.json"), "-o", str(tmp_path / "c")])
    assert done.exit_code == 2
    assert "NO_SUCH_TABLE" in done.output


def test_check_reads_an_editors_buffer_under_its_name() -> None:
    text = spec_text({"algorithm": {"batch_size": 130, "group_size": 16}})
    done = CliRunner().invoke(
        main, ["check", "-", "--stdin-filename", "runs/mine.yaml", "--format", "json"], input=text
    )
    assert done.exit_code == 1
    (found,) = [d for d in json.loads(done.stdout) if d["severity"] == "error"]
    assert (found["code"], found["file"]) == ("PRL301", "runs/mine.yaml")


def test_check_strict_refuses_warnings() -> None:
    text = spec_text({"workload": {"environment": {"id": "swe"}}})
    assert CliRunner().invoke(main, ["check", "-"], input=text).exit_code == 0
    strict = CliRunner().invoke(main, ["check", "-", "--strict"], input=text)
    assert strict.exit_code == 1
    assert "error[PRL372]" in strict.stderr


def test_a_mistake_in_a_cluster_file_stands_at_its_own_line(tmp_path: Path) -> None:
    cluster = yaml.safe_load((ROOT / "examples" / "clusters" / "cpu-3.yaml").read_text())
    cluster["node"]["memory"] = "7 gigs"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(cluster, sort_keys=False))
    spec = tmp_path / "run.yaml"
    spec.write_text(spec_text({"model": "tiny-moe", "cluster": "mine.yaml", "sequence": {"seq_len": 512}}))
    done = CliRunner().invoke(main, ["check", str(spec)])
    assert done.exit_code == 1
    assert f"--> {tmp_path / 'mine.yaml'}:" in done.stderr
    assert "memory: 7 gigs" in done.stderr


def test_the_hook_is_a_command_that_there_is() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    assert program == "prlc"
    assert command in main.commands  # type: ignore[attr-defined]
