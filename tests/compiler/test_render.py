"""A plan as people read it: units, bars, 120 columns, no colour where none is wanted."""

import dataclasses
import io

import pytest
from prlc.compiler import explain, render
from prlc.schema.plan import Alternative, Decision, Ledger, LedgerEntry, Plan, RoleSummary, Term, Warning

from tests.templates import plans

GIB = 2**30


def term(name: str, expected: float, *terms: Term, extrapolated: bool = False) -> Term:
    return Term(
        name=name, unit="s", low=expected * 0.9, expected=expected, high=expected * 1.2, formula="f",
        source="s", extrapolated=extrapolated, terms=terms,
    )  # fmt: skip


def ledger(role: str, resource: str, used: int, capacity: int) -> Ledger:
    entry = LedgerEntry(what="weights", phase="always", bytes=used, formula="f")
    return Ledger(role=role, resource=resource, capacity=capacity, entries=(entry,))  # type: ignore[arg-type]


@pytest.fixture
def glm() -> Plan:
    base = plans.plan()
    split = Alternative(value="11 trainer nodes", outcome="step 300 s (+4.2%)")
    return dataclasses.replace(
        base,
        name="glm-5.1-swe",
        model=dataclasses.replace(
            base.model, name="glm-5.1", attention="dsa", total_params=744 * 10**9, num_experts=256, top_k=8,
            replay_bytes_per_token=624,
        ),
        cluster=dataclasses.replace(base.cluster, nodes=28, gpus_per_node=8, gpu="h200"),
        table=(
            RoleSummary(role="trainer", nodes="0-11", gpus=96, layout="fsdp 96 = dp 24 x cp 4, ep 8, fp8",
                        reason="ep 8: a layer gathers 2.3 GiB, not 18.0; cp 4: 32768 tokens a rank"),
            RoleSummary(role="decode", nodes="20-27", gpus=64, layout="1 x (tp 1, dp 64, ep 64), fp8",
                        reason="experts over 64 ranks; KV pool 3.10 M tokens a server"),
        ),
        ledgers=(
            ledger("trainer", "hbm", 118 * GIB, 140 * GIB),
            ledger("decode", "hbm", 109 * GIB, 140 * GIB),
            ledger("trainer", "host", 612 * GIB, 2048 * GIB),
        ),
        forecast=term("step", 288, term("rollouts", 288), term("trainer", 234, extrapolated=True)),
        decisions=(
            Decision(path="trainer.nodes", value="12", asked="auto", rule="solve",
                     reason="12 nodes keep pace",
                     alternatives=(split,)),
            Decision(path="trainer.parallel.ep", value="8", asked="auto", rule="solve", reason="it fits"),
            Decision(path="nodes", value="28", asked="auto", rule="objective", reason="all of them"),
        ),
        warnings=(Warning(code="PRL351", message="many rollouts will be stale"),),
        alternatives=(split,),
    )  # fmt: skip


def printed(plan: Plan, color: bool = False) -> str:
    out = io.StringIO()
    render.plan_text(plan, render.console(out, color), "run.yaml")
    return out.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (600, "600 B"), (1024, "1 KiB"), (18 * 2**30, "18 GiB"), (int(1.5 * 2**30), "1.5 GiB")],
)
def test_size(count: int, text: str) -> None:
    assert render.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (9.04, "9.0 s"), (42, "42 s"), (288, "4.8 min"), (7200, "2.0 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(744_000_000_000, "744B"), (30_532_122_624, "30.5B"), (12_000_000, "12M")])
def test_params(count: int, text: str) -> None:
    assert render.params(count) == text


@pytest.mark.parametrize(("used", "cells"), [(0, 0), (1, 1), (50, 4), (100, 9), (200, 9)])
def test_bar_is_as_full_as_the_memory(used: int, cells: int) -> None:
    drawn = render.bar(used, 100)
    assert drawn.count("#") == cells
    assert len(drawn) == render.BAR + 2


def test_plan_says_what_is_decided_on_lines_of_120_columns(glm: Plan) -> None:
    text = printed(glm)
    for part in (
        "glm-5.1-swe", "glm-5.1 (744B, DSA, 256 experts top-8)", "28 nodes x 8 H200",
        "HBM a GPU (of 140 GiB)", "118 GiB  [########-]", "109 GiB  [#######--]", "0-11",
        "fsdp 96 = dp 24 x cp 4",
        "host RAM (trainer): 612 GiB of 2.0 TiB".replace("2.0 TiB", render.size(2048 * GIB)),
        "router replay: 624 B a token", "step         4.8 min (4.3 min - 5.8 min)",
        "rollouts     4.8 min (4.3 min - 5.8 min)",
        "beyond data  trainer (3.9 min): no measurement", "1 warning:\n   PRL351 many", "Next: prlc build run.yaml",
    ):  # fmt: skip
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= render.WIDTH


def test_warnings_of_a_kind_are_one_line(glm: Plan) -> None:
    many = tuple(Warning(code="PRL803", message=f"nobody has shown {'words ' * 40}{n}") for n in range(3))
    text = printed(dataclasses.replace(glm, warnings=(*glm.warnings, *many)))
    lines = [line for line in text.splitlines() if "PRL" in line]
    assert lines[0] == "   PRL351 many rollouts will be stale"
    assert lines[1].startswith("   PRL803 nobody has shown words")
    assert lines[1].endswith(" ... (and 2 more)")
    assert len(lines) == 2
    assert max(map(len, lines)) <= render.WIDTH
    assert "4 warnings:" in text
    assert "in full: prlc check run.yaml" in text


def test_long_lists_of_terms_are_wrapped_and_shares_are_percent(glm: Plan) -> None:
    parts = [term(f"part number {i}", 10) for i in range(12)]
    share = dataclasses.replace(term("dropped", 0.0332), unit="1")
    count = dataclasses.replace(term("in-flight groups", 32), unit="1")
    text = printed(dataclasses.replace(glm, forecast=term("step", 288, *parts, share, count)))
    assert max(len(line) for line in text.splitlines()) <= render.WIDTH
    assert "dropped 3.3 %" in text
    assert "groups 32\n" in text


def test_a_part_of_the_forecast_shows_its_band_and_its_own_parts(glm: Plan) -> None:
    inner = term("trainer step", 234, term("GEMM", 100), term("expert all-to-all", 30, extrapolated=True))
    inner = dataclasses.replace(inner, extrapolated=True)
    text = printed(dataclasses.replace(glm, forecast=term("step", 288, inner)))
    assert "trainer step 3.9 min (3.5 min - 4.7 min): GEMM 1.7 min, expert all-to-all 30 s" in text
    assert "beyond data  expert all-to-all (30 s): no measurement" in text


def test_what_was_changed_stands_in_the_header(glm: Plan) -> None:
    out = io.StringIO()
    render.plan_text(glm, render.console(out, False), "run.yaml", ["nodes 32 (the spec: auto)"])
    assert out.getvalue().splitlines()[1] == " with nodes 32 (the spec: auto)"


def test_no_escape_codes_without_colour_and_the_same_words_with_it(glm: Plan) -> None:
    plain, colored = printed(glm), printed(glm, color=True)
    assert "\x1b" not in plain
    assert "\x1b[" in colored


def test_a_plan_on_cpus_has_no_gpus() -> None:
    text = printed(plans.plan())
    assert "3 nodes of CPUs" in text
    assert "GPUs" not in text
    assert "HBM" not in text


@pytest.mark.parametrize("asked", ["trainer.parallel.ep", "trainer.ep", "ep", "EP"])
def test_a_decision_is_found_by_the_end_of_its_path(glm: Plan, asked: str) -> None:
    assert explain.decision(glm, asked).path == "trainer.parallel.ep"


def test_an_exact_path_wins_and_an_unknown_one_is_refused(glm: Plan) -> None:
    assert explain.decision(glm, "nodes").path == "nodes"
    with pytest.raises(explain.NothingToExplain, match=r"trainer\.parallel\.ep"):
        explain.decision(glm, "trainer.parallel.eq")


def test_a_decision_says_value_reason_and_what_lost(glm: Plan) -> None:
    text = explain.decision_text(explain.decision(glm, "trainer.nodes"))
    for part in ("trainer.nodes = 12", "asked: auto", "12 nodes keep pace", "11 trainer nodes", "+4.2%"):
        assert part in text


def test_alternatives_are_numbered_and_cut(glm: Plan) -> None:
    many = dataclasses.replace(glm, alternatives=glm.alternatives * 5)
    out = io.StringIO()
    render.alternatives_text(many, 3, render.console(out, False))
    assert out.getvalue().count("+4.2%") == 3
    out = io.StringIO()
    render.alternatives_text(dataclasses.replace(glm, alternatives=()), 3, render.console(out, False))
    assert "no other layout fits" in out.getvalue()
