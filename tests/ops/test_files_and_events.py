"""What other processes may see of a file, a folder and a log while its writer dies at any point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prlc.runtime.ops.events import Events, Metrics, read_lines, read_metrics
from prlc.runtime.ops.files import (
    complete_numbers,
    is_complete,
    newest_complete,
    publish_folder,
    write_atomic,
)
from prlc.runtime.ops.rendezvous import Rendezvous, RendezvousError
from prlc.schema.topology import Endpoint, Role, Topology


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"one")
    write_atomic(tmp_path / "a", "two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="a"):
        write_atomic(tmp_path / "a", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_publish_folder_replaces_the_incomplete_and_keeps_the_complete(tmp_path: Path) -> None:
    final = tmp_path / "step_00000003"
    final.mkdir()
    (final / "torn").write_text("half")
    new = tmp_path / "tmp"
    (new / "sub").mkdir(parents=True)
    (new / "sub" / "x").write_text("whole")
    assert not is_complete(final)
    publish_folder(new, final)
    assert is_complete(final)
    assert (final / "sub" / "x").read_text() == "whole"
    assert not (final / "torn").exists()
    new.mkdir()
    with pytest.raises(FileExistsError):
        publish_folder(new, final)


def test_newest_complete_skips_what_is_not_complete(tmp_path: Path) -> None:
    assert newest_complete(tmp_path / "none") is None
    for name, complete in (
        ("step_00000009", True),
        ("step_00000010", True),
        ("step_00000011", False),
        ("other_12", True),
    ):
        (tmp_path / name).mkdir()
        if complete:
            (tmp_path / name / "COMPLETE").touch()
    assert newest_complete(tmp_path) == tmp_path / "step_00000010"
    assert list(complete_numbers(tmp_path)) == [9, 10]


def test_events_start_on_their_own_line_after_a_torn_one(tmp_path: Path) -> None:
    first = Events(tmp_path, "trainer", 0, attempt=1)
    first.emit("step", step=1)
    first.close()
    path = tmp_path / "events" / "trainer-0.jsonl"
    path.write_bytes(path.read_bytes() + b'{"event": "torn')
    second = Events(tmp_path, "trainer", 0, attempt=2)
    second.emit("step", step=2)
    assert [(r["attempt"], r["step"]) for r in read_lines(path)] == [(1, 1), (2, 2)]
    assert json.loads(path.read_text().splitlines()[-1])["role"] == "trainer"


def test_metrics_of_a_repeated_step_count_once(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, "trainer", 0, attempt=1)
    metrics.log(1, loss=1.0)
    metrics.log(2, loss=2.0)
    metrics.log(2, loss=3.0)
    assert {s: r["loss"] for s, r in read_metrics(tmp_path / "metrics" / "trainer-0.jsonl").items()} == {
        1: 1.0,
        2: 3.0,
    }


def test_rendezvous_joins_indexes_and_addresses() -> None:
    engine = Role(
        name="engine", kind="engine", ready="health", finishes=False,
        endpoints=(Endpoint(index=0, node=1, port=8000), Endpoint(index=1, node=0, port=0)),
    )  # fmt: skip
    meeting = Rendezvous(Topology(run="r", nodes=2, roles=(engine,)), ("10.0.0.1", "10.0.0.2"))
    assert meeting.endpoint_url("engine", 0) == "http://10.0.0.2:8000"
    with pytest.raises(RendezvousError, match="does not listen"):
        meeting.endpoint_url("engine", 1)
    with pytest.raises(RendezvousError, match="it has: engine"):
        meeting.role("router")
    with pytest.raises(RendezvousError, match="2 nodes, the nodes file has 1"):
        Rendezvous(meeting.topology, ("10.0.0.1",))
