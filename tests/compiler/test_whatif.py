"""Questions with other values: flags, sweeps, the frontier, and what a decision beat."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc.compiler.cli import main
from prlc.compiler.pins import PinError, full_path
from prlc.compiler.rules.example import spec_text
from prlc.compiler.search.losers import with_losers
from prlc.compiler.whatif import Answer, SweepError, answer, changes, frontier, swept
from prlc.schema.plan import Decision

SPEC = spec_text({"cluster": "h200-28x8", "nodes": 4})


def prlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("text", "path", "values"),
    [
        ("nodes=8:32:8", "nodes", ("8", "16", "24", "32")),
        ("nodes=2:4", "nodes", ("2", "3", "4")),
        ("seq-len=4096,8192", "sequence.seq_len", ("4096", "8192")),
        ("trainer.precision=bf16, fp8", "trainer.precision", ("bf16", "fp8")),
        ("objective.step_time=30s,1min", "objective.step_time", ("30s", "1min")),
        ("trainer.ep=4,8", "trainer.parallel.ep", ("4", "8")),
    ],
)
def test_a_sweep_is_read(text: str, path: str, values: tuple[str, ...]) -> None:
    assert swept(text) == (path, values)


@pytest.mark.parametrize(
    "text", ["nodes", "nodes=", "=1:2", "nodes=8:4:1", "nodes=1:8:0", "nodes=a:b", "nodes=1:2:3:4"]
)
def test_what_is_no_sweep_is_refused(text: str, spec: Path) -> None:
    with pytest.raises(SweepError):
        swept(text)
    assert prlc("plan", spec, "--sweep", text).exit_code == 2


def test_a_sweep_too_large_is_refused(spec: Path) -> None:
    done = prlc("plan", spec, "--sweep", "nodes=1:300")
    assert done.exit_code == 2
    assert "300 combinations" in done.stderr


def test_the_header_says_what_was_changed(spec: Path) -> None:
    done = prlc("plan", spec, "--nodes", 2, "--seq-len", 8192, "--set", "trainer.precision=fp8")
    assert done.exit_code == 0, done.output
    header = done.stdout.splitlines()[1]
    for part in ("nodes 2 (the spec: 4)", "sequence.seq_len 8192 (the spec: 16384)", "trainer.precision fp8"):
        assert part in header
    assert "8,192 tokens" in done.stdout
    assert "with" not in prlc("plan", spec).stdout.splitlines()[1]


def test_changes_name_nothing_where_the_spec_says_nothing() -> None:
    assert changes(SPEC, {"seed": "3", "nodes": "9"}) == ["seed 3 (the spec: nothing)", "nodes 9 (the spec: 4)"]


def test_more_nodes_than_the_cluster_has_are_planned_but_not_built(tmp_path: Path, spec: Path) -> None:
    found = answer(SPEC.replace("nodes: 4", "nodes: auto"), "run.yaml", {"nodes": "40", "trainer.nodes": "30"})
    assert found.choice is not None
    assert found.choice.split[0] == 30
    shown = prlc("plan", spec, "--nodes", 40, "--set", "trainer.nodes=30")
    assert shown.exit_code == 0, shown.output
    assert prlc("build", spec, "-o", tmp_path / "b", "--pin", "nodes=40", "--pin", "trainer.nodes=30").exit_code == 1


def test_another_cluster(spec: Path) -> None:
    done = prlc("plan", spec, "--cluster", "h200-1x8", "--set", "nodes=auto")
    assert done.exit_code == 0, done.output
    assert "1 node x 8 H200" in done.stdout
    assert prlc("plan", spec, "--cluster", "no-such").exit_code == 1


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("trainer.ep", "trainer.parallel.ep"),
        ("ep", "trainer.parallel.ep"),
        ("seq_len", "sequence.seq_len"),
        ("nodes", "nodes"),
        ("trainer.nodes", "trainer.nodes"),
        ("workload.environment.args.level", "workload.environment.args.level"),
        ("no.such.path", "no.such.path"),
    ],
)
def test_a_pin_may_name_the_end_of_a_path(short: str, full: str) -> None:
    assert full_path(short) == full


def test_an_ambiguous_pin_is_wrong_usage(spec: Path) -> None:
    with pytest.raises(PinError, match=r"trainer\.precision or inference\.precision"):
        full_path("precision")
    assert prlc("plan", spec, "--pin", "precision=fp8").exit_code == 2
    assert prlc("plan", spec, "--sweep", "precision=fp8,bf16").exit_code == 2


def test_a_short_pin_is_held_and_checked(spec: Path) -> None:
    held = prlc("plan", spec, "--json", "--pin", "trainer.ep=4")
    assert held.exit_code == 0, held.output
    assert json.loads(held.stdout)["trainer"]["parallel"]["ep"] == 4
    assert "PRL314" in prlc("plan", spec, "--pin", "trainer.ep=12").stderr


def test_a_sweep_is_a_table_and_json(spec: Path) -> None:
    table = prlc("plan", spec, "--sweep", "nodes=2:4")
    assert table.exit_code == 0, table.output
    rows = [line for line in table.stdout.splitlines() if " GPU" not in line and "fsdp" in line]
    assert len(rows) == 3
    points = json.loads(prlc("plan", spec, "--sweep", "nodes=2:4", "--json").stdout)
    assert [p["values"]["nodes"] for p in points] == ["2", "3", "4"]
    assert points[2]["step_seconds"] <= points[1]["step_seconds"] <= points[0]["step_seconds"]
    for point in points:
        assert point["gpus"] <= 8 * int(point["values"]["nodes"])
        assert point["tokens_per_gpu_hour"] > 0


def test_two_axes_and_a_refused_point(spec: Path) -> None:
    done = prlc("plan", spec, "--sweep", "nodes=1,2", "--sweep", "trainer.parallel.ep=8,7", "--json")
    points = json.loads(done.stdout)
    assert len(points) == 4
    assert [("refused" in p) for p in points] == [False, True, False, True] or points[0].get("refused")
    assert all("7" in p["refused"] for p in points if p["values"]["trainer.parallel.ep"] == "7")


def test_a_sweep_without_a_plan_is_exit_code_1(spec: Path) -> None:
    done = prlc("plan", spec, "--sweep", "trainer.parallel.ep=7,9")
    assert done.exit_code == 1
    assert "refused" in done.stdout


def test_the_frontier_is_what_no_other_beats() -> None:
    base = answer(SPEC, "run.yaml", {})
    assert base.choice is not None

    def point(step: float, nodes: int) -> Answer:
        assert base.choice is not None
        mesh = dataclasses.replace(base.choice.layout.trainer, nodes=tuple(range(nodes)))
        layout = dataclasses.replace(base.choice.layout, trainer=mesh)
        return dataclasses.replace(base, choice=dataclasses.replace(base.choice, step=step, layout=layout))

    refused = dataclasses.replace(base, choice=None)
    assert frontier([point(10, 4), point(12, 3), point(11, 4), refused, point(12, 5)]) == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_what_a_degree_beat_is_planned_and_priced() -> None:
    found = Decision(path="trainer.parallel.cp", value="1", asked="auto", rule="solve", reason="it fits")
    chosen = answer(SPEC, "run.yaml", {})
    assert chosen.choice is not None
    found = dataclasses.replace(found, value=str(chosen.choice.layout.trainer.cp))
    losers = with_losers(SPEC, "run.yaml", {}, found).alternatives
    assert {a.value for a in losers} == {"1", "2", "4", "8"} - {found.value}
    for loser in losers:
        assert loser.outcome.startswith(("step ", "refused: "))
        tried = answer(SPEC, "run.yaml", {"trainer.parallel.cp": loser.value})
        if tried.choice is not None:
            assert f"step {tried.choice.step:.1f} s" in loser.outcome
            assert tried.choice.step >= chosen.choice.step
            assert "GiB a GPU" in loser.outcome


def test_explain_prints_the_losers(spec: Path) -> None:
    done = prlc("plan", spec, "--explain", "trainer.ep")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("step ") + done.stdout.count("refused: ") >= 4
