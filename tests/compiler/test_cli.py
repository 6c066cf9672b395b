"""The command line as a person uses it: exit codes, what goes to stdout, what to stderr."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc.compiler.cli import main
from prlc.compiler.rules.example import spec_text
from prlc.schema.codec import decode, load
from prlc.schema.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = EXAMPLES / "tiny-moe-cpu.yaml"

FIVE_MISTAKES = """\
name: five
model: qwen3-30b-a3b
cluster: h200-1x8
algorithm: {batch_size: 130, group_size: 8, max_off_policy_steps: 4}
sequence: {seq_len: 9999999}
workload:
  environment: {id: lookup}
  turns: {mean: 4}
  new_tokens_per_turn: {mean: 300}
  output_tokens_per_turn: {mean: 600}
  tool_time: {mean: 100ms}
trainer: {parallel: {ep: 12}, optimizer: {lr: 1e-6}}
inference: {tensor_parallel: 3}
slurm: {partition: gpu debug}
"""
FIVE_CODES = {"PRL301": 4, "PRL303": 5, "PRL314": 12, "PRL321": 13, "PRL362": 14}  # code: line

FIVE_TYPOS = """\
name: five
model: qwen3-30b-a3
cluster: h200-1x9
algorithm: {batch_size: 128, group_size: eight, max_off_policy_steps: 4}
sequence: {seq_length: 16384, seq_len: 16384}
workload:
  environment: {id: lookup}
  turns: {mean: 4}
  new_tokens_per_turn: {mean: 300}
  output_tokens_per_turn: {mean: 600}
  tool_time: {mean: 100}
trainer: {optimizer: {lr: 1e-6}}
"""


def prlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def five(tmp_path: Path) -> Path:
    path = tmp_path / "five.yaml"
    path.write_text(FIVE_MISTAKES)
    return path


def test_five_mistakes_are_five_diagnostics_at_their_lines(five: Path) -> None:
    done = prlc("plan", five)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.count("error[") == 5
    for code, line in FIVE_CODES.items():
        assert f"error[{code}]" in done.stderr
        assert f"{five}:{line}:" in done.stderr
        assert f"prlc explain {code}" in done.stderr
    assert "^" in done.stderr
    assert "\x1b" not in done.stderr


def test_five_typos_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "typos.yaml"
    path.write_text(FIVE_TYPOS)
    done = prlc("plan", path, "--format", "json")
    assert done.exit_code == 1
    found = {(d["code"], d["line"]) for d in json.loads(done.stdout)}
    assert found == {("PRL201", 2), ("PRL202", 3), ("PRL104", 4), ("PRL102", 5), ("PRL105", 11)}


@pytest.mark.parametrize("form", ["json", "github", "sarif"])
def test_machines_read_all_five_from_stdout(five: Path, form: str) -> None:
    done = prlc("plan", five, "--format", form)
    assert done.exit_code == 1
    assert done.stderr == ""
    assert all(code in done.stdout for code in FIVE_CODES)
    if form != "github":
        assert json.loads(done.stdout)


def test_plan_prints_the_roles_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = prlc("plan", TINY)
    assert done.exit_code == 0, done.stderr
    for part in ("tiny-moe", "trainer", "engine", "step", "Next: prlc build"):
        assert part in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_plan_as_json_is_the_plan_and_the_same_twice() -> None:
    first, second = prlc("plan", TINY, "--json"), prlc("plan", TINY, "--json")
    assert first.exit_code == 0, first.stderr
    assert first.stdout == second.stdout
    assert decode(Plan, json.loads(first.stdout)).name == "tiny-moe"


def test_explain_and_alternatives_of_a_plan() -> None:
    why = prlc("plan", TINY, "--explain", "router_replay")
    assert why.exit_code == 0, why.stderr
    assert why.stdout.startswith("algorithm.router_replay = true")
    assert prlc("plan", TINY, "--explain", "no.such.path").exit_code == 2
    assert "chosen:" in prlc("plan", TINY, "--alternatives", "3").stdout


def test_a_pin_holds_a_value_and_is_checked() -> None:
    held = prlc("plan", TINY, "--json", "--pin", "algorithm.max_inflight_groups=3")
    assert held.exit_code == 0, held.stderr
    assert json.loads(held.stdout)["orchestrator"]["max_inflight_groups"] == 3
    refused = prlc("plan", TINY, "--pin", "algorithm.batch_size=63")
    assert refused.exit_code == 1
    assert "error[PRL301]" in refused.stderr
    assert prlc("plan", TINY, "--pin", "nonsense").exit_code == 2


@pytest.mark.parametrize(
    ("text", "code"), [("", "PRL106"), ("- a\n", "PRL104"), ("a: [1\n", "PRL101"), ("name: a\nname: b\n", "PRL103")]
)
@pytest.mark.parametrize("pins", [(), ("--pin", "seed=3")], ids=["plain", "pinned"])
def test_a_text_that_is_no_spec_is_refused(tmp_path: Path, text: str, code: str, pins: tuple[str, ...]) -> None:
    (tmp_path / "run.yaml").write_text(text)
    done = prlc("plan", tmp_path / "run.yaml", *pins)
    assert done.exit_code == 1
    assert f"error[{code}]" in done.stderr


def test_bytes_that_are_no_text_are_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    assert prlc("plan", tmp_path / "run.yaml").exit_code == 2


def test_build_verify_and_diff(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    made = prlc("build", TINY, "-o", a)
    assert made.exit_code == 0, made.stderr
    assert "bash run.sh" in made.stdout
    assert prlc("verify", a).exit_code == 0
    assert prlc("build", "--plan", a / "plan.json", "-o", b).exit_code == 0
    assert prlc("diff", a, b).exit_code == 0
    files = sorted(p.relative_to(a) for p in a.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(b) for p in b.rglob("*") if p.is_file())
    assert all((a / f).read_bytes() == (b / f).read_bytes() for f in files)

    (b / "run.sh").write_text("echo changed\n")
    changed = prlc("verify", b)
    assert (changed.exit_code, changed.stdout) == (1, "changed: run.sh\n")
    assert prlc("build", TINY, "-o", b, "--pin", "seed=7").exit_code == 0
    differs = prlc("diff", a, b)
    assert differs.exit_code == 1
    assert "seed: 0 became 7" in differs.stdout


def test_build_says_what_the_plan_warns_of(tmp_path: Path) -> None:
    spec = tmp_path / "warned.yaml"
    spec.write_text(Path(TINY).read_text("utf-8").replace("id: lookup", "id: elsewhere"))
    made = prlc("build", spec, "-o", tmp_path / "a")
    assert made.exit_code == 0, made.stderr
    assert "PRL372 no environment 'elsewhere'" in made.stderr
    assert f"in full: prlc check {spec}" in made.stderr
    again = prlc("build", "--plan", tmp_path / "a" / "plan.json", "-o", tmp_path / "b")
    assert "PRL372" in again.stderr
    assert "plan.json, warnings" in again.stderr
    assert prlc("build", spec, "-o", tmp_path / "c", "--format", "json").stderr == ""


def test_build_leaves_a_strangers_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    done = prlc("build", TINY, "-o", tmp_path)
    assert done.exit_code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_build_of_a_refused_spec_writes_nothing(five: Path, tmp_path: Path) -> None:
    assert prlc("build", five, "-o", tmp_path / "out").exit_code == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "no-such.yaml"),
        ("build", "-o", "x"),
        ("build", "--plan", TINY, "-o", "x"),
        ("explain", "PRL999"),
        ("catalog", "show", "no-such"),
        ("schema", "no-such"),
        ("verify", EXAMPLES),
    ],
    ids=lambda a: " ".join(Path(str(word)).name for word in a),
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[object, ...]) -> None:
    done = prlc(*arguments)
    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.output


def test_check_counts_errors_and_warnings_of_all_specs(five: Path, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(spec_text({"cluster": "local-cpu", "model": "tiny-moe", "sequence": {"seq_len": 512},
                               "workload": {"turns": {"mean": 2}}}))  # fmt: skip
    fine = prlc("check", good)
    assert fine.exit_code == 0, fine.output
    both = prlc("check", good, five)
    assert both.exit_code == 1
    assert "2 checked: 5 errors" in both.stdout


def test_catalog_explain_and_schema() -> None:
    listed = prlc("catalog", "list")
    assert listed.exit_code == 0
    assert "  glm-5.1\n" in listed.stdout
    assert "h200-28x8" not in prlc("catalog", "list", "models").stdout
    shown = prlc("catalog", "show", "qwen3-30b-a3b")
    assert "# total_params: 30,532,122,624" in shown.stdout
    assert prlc("catalog", "show", "h200-28x8").exit_code == 0
    assert "num_experts % ep == 0" in prlc("explain", "prl314").stdout
    assert "PRL401" in prlc("explain").stdout
    assert json.loads(prlc("schema", "run").stdout)["type"] == "object"
    assert "plan" in prlc("schema").stdout.split()


def test_planning_needs_no_heavy_package() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from prlc.compiler.cli import main;"
        f"r = CliRunner().invoke(main, ['plan', {str(TINY)!r}]); assert r.exit_code == 0, r.output;"
        "print([m for m in ('torch', 'numpy', 'vllm', 'torchtitan', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_is_planned(path: Path) -> None:
    done = prlc("plan", path)
    assert done.exit_code == 0, done.stderr


def test_a_bundle_holds_its_plan(tmp_path: Path) -> None:
    assert prlc("build", TINY, "-o", tmp_path / "b").exit_code == 0
    assert load(Plan, tmp_path / "b" / "plan.json").spec_text == TINY.read_text()
