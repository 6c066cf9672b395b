"""The page of a plan: whole, offline, escaped, its drawings true to the plan, and the same in a browser."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from prlc.compiler.cli import main
from prlc.compiler.forecast.loop import drop_rate
from prlc.compiler.plan import plan as make
from prlc.compiler.report.cluster_map import SMALL, cluster_map
from prlc.compiler.report.lag import lag_chart
from prlc.compiler.report.memory import WIDTH, memory_bars
from prlc.compiler.report.page import html as page
from prlc.compiler.report.scatter import Point, scatter
from prlc.compiler.report.times import times
from prlc.compiler.rules.example import spec_text
from prlc.schema.plan import Ledger, LedgerEntry, Plan, Warning
from prlc.schema.topology import Endpoint

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = spec_text({"cluster": "h200-28x8", "nodes": 3})
SECTIONS = ["layout", "time", "memory", "layouts", "lag", "decisions"]
VOID = {"meta", "rect", "path", "circle", "br", "link"}


@pytest.fixture(scope="module")
def plan() -> Plan:
    made, found = make(TEXT, "run.yaml")
    assert made is not None, found
    return made


class Reader(html.parser.HTMLParser):
    """Open tags, ids and everything that would leave the file."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action") or name.startswith("on"):
                self.outside.append(f"{tag} {name}={value}")
        if tag in ("script", "iframe", "img", "link", "object", "embed"):
            self.outside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def test_the_page_is_whole_and_needs_nothing_else(plan: Plan) -> None:
    text = page(plan, TEXT)
    found = read(text)
    assert found.open == []
    assert found.outside == []
    assert [part for part in found.ids if part != "warnings"] == SECTIONS
    assert "@import" not in text
    assert "url(" not in text
    assert "http" not in re.sub(r'http-equiv="', "", text)
    assert "prefers-color-scheme: dark" in text
    words = " ".join(found.words)
    for part in (plan.name, plan.model.name, *(row.layout for row in plan.table), *(d.path for d in plan.decisions)):
        assert part in words


def test_what_a_spec_says_is_text_and_never_markup(plan: Plan) -> None:
    evil = "<script>alert(1)</script>\"'&"
    table = tuple(dataclasses.replace(row, reason=evil) for row in plan.table)
    named = dataclasses.replace(
        plan, name=evil, table=table, warnings=(Warning(code="PRL999", message=evil, help=evil),)
    )
    text = page(named, TEXT, (Point(8, 10.0, evil),), [evil])
    assert read(text).outside == []
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 5


def test_every_gpu_of_every_node_has_its_role(plan: Plan) -> None:
    drawn = cluster_map(plan)
    assert len(drawn.boxes) == plan.topology.nodes
    cells = [cell for box in drawn.boxes for cell in box.cells]
    assert len(cells) == plan.topology.nodes * plan.cluster.gpus_per_node
    for row in plan.table:
        assert sum(cell.role == row.role for cell in cells) == row.gpus
    assert len({(cell.x, cell.y) for cell in cells}) == len(cells)
    assert all(cell.x < drawn.width and cell.y < drawn.height for cell in cells)
    assert "O" in "".join(box.badges for box in drawn.boxes)


def test_a_large_cluster_has_one_cell_a_node(plan: Plan) -> None:
    nodes = SMALL + 1
    trainer = next(role for role in plan.topology.roles if role.kind == "trainer")
    many = dataclasses.replace(
        trainer, endpoints=tuple(Endpoint(index=n, node=n, port=0, devices=tuple(range(8))) for n in range(nodes))
    )
    drawn = cluster_map(
        dataclasses.replace(plan, topology=dataclasses.replace(plan.topology, nodes=nodes, roles=(many,)))
    )
    assert [len(box.cells) for box in drawn.boxes] == [1] * nodes


def test_memory_bars_are_as_long_as_their_bytes() -> None:
    entries = tuple(LedgerEntry(what=str(n), phase="always", bytes=n, formula="f") for n in (10, 30, 0, 20))
    ledger = Ledger(role="trainer", resource="hbm", capacity=120, entries=entries)
    plan_ = dataclasses.replace(_cpu(), ledgers=(ledger, dataclasses.replace(ledger, capacity=50)))
    fits, over = memory_bars(plan_)
    assert [s.what for s in fits.segments] == ["30", "20", "10"]
    assert sum(s.width for s in fits.segments) == pytest.approx(WIDTH / 2, abs=0.1)
    assert fits.limit == WIDTH
    assert (fits.over, over.over) == (False, True)
    assert over.limit == pytest.approx(WIDTH * 50 / 60, abs=0.1)


def _cpu() -> Plan:
    made, found = make((EXAMPLES / "tiny-moe-cpu.yaml").read_text(), "run.yaml")
    assert made is not None, found
    return made


def test_times_are_on_one_axis_and_parts_fill_their_bar(plan: Plan) -> None:
    drawn = times(plan)
    assert drawn.lines[0].name == "step"
    for line in drawn.lines:
        assert line.low <= line.width + 0.02 <= line.high + 0.04
        if line.pieces:
            assert sum(p.width for p in line.pieces) == pytest.approx(line.width, abs=0.5)
    lengths = [line.width for line in drawn.lines]
    expected = [plan.forecast.expected, *(t.expected for t in plan.forecast.terms if t.unit == "s")]
    for width, seconds in zip(lengths, expected, strict=True):
        assert width / lengths[0] == pytest.approx(seconds / expected[0], abs=0.01)
    assert len(drawn.rows) > len(drawn.lines)


def test_the_scatter_knows_the_chosen_and_the_frontier(plan: Plan) -> None:
    gpus = sum(row.gpus for row in plan.table)
    step = plan.forecast.expected
    swept = (Point(gpus // 2, step * 2, "half"), Point(gpus * 2, step / 2, "twice"), Point(gpus * 2, step * 3, "bad"))
    alone = dataclasses.replace(plan, alternatives=())
    drawn = scatter(alone, swept)
    kinds = {dot.title.rpartition(": ")[2]: dot.kind for dot in drawn.dots}
    assert (kinds["half"], kinds["twice"], kinds["bad"]) == ("frontier", "frontier", "lost")
    assert sum(dot.kind == "chosen" for dot in drawn.dots) == 1
    assert drawn.path.count("L") == 2
    at = {dot.title.rpartition(": ")[2]: dot for dot in drawn.dots}
    assert at["half"].x < at["twice"].x
    assert at["half"].y < at["twice"].y  # SVG counts downwards


def test_lag_columns_are_the_forecasts_own_shares(plan: Plan) -> None:
    drawn = lag_chart(plan, 0.8)
    assert drawn is not None
    loop = plan.orchestrator
    in_flight = loop.max_inflight_groups * loop.group_size
    dropped = drop_rate(in_flight, loop.batch_size, loop.max_off_policy_steps, 0.8)
    shares = [float(re.search(r": ([\d.]+)%", column.title)[1]) for column in drawn.columns]  # type: ignore[index]
    assert sum(shares) == pytest.approx(100, abs=1)
    late = sum(share for share, column in zip(shares, drawn.columns, strict=True) if column.dropped)
    assert late == pytest.approx(100 * dropped, abs=1)


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    spec, out = tmp_path / "run.yaml", tmp_path / "plan.html"
    spec.write_text(TEXT)
    done = CliRunner().invoke(main, ["plan", str(spec), "--html", str(out), "--nodes", "2"])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert "nodes 2 (the spec: 3)" in text
    assert read(text).open == []
    lost = CliRunner().invoke(main, ["plan", str(spec), "--html", str(tmp_path / "no" / "plan.html")])
    assert lost.exit_code == 2


def test_a_cpu_plan_has_a_page_without_a_scatter() -> None:
    text = page(_cpu(), (EXAMPLES / "tiny-moe-cpu.yaml").read_text())
    assert "layouts" not in read(text).ids
    assert read(text).open == []


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_chromium_draws_it(plan: Plan, tmp_path: Path, dark: bool) -> None:
    (tmp_path / "plan.html").write_text(page(plan, TEXT))
    asked = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *asked,
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,1400", "--dump-dom",
         f"file://{tmp_path / 'plan.html'}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    drawn = read(done.stdout)
    assert [part for part in drawn.ids if part != "warnings"] == SECTIONS
    assert done.stdout.count("<rect") == page(plan, TEXT).count("<rect")
    assert "Refused to" not in done.stderr
    assert "CONSOLE" not in done.stderr
