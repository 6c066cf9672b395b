"""The table of launch faults: complete, proven, current, and at the share that it claims."""

from __future__ import annotations

import pytest

from tests.faults.table import GROUPS, ROOT, STAGES, Row, coverage, document, problem, rows

SHARE = 0.95


@pytest.mark.parametrize("row", rows(), ids=lambda r: r.id)
def test_every_row_has_a_stage_and_a_proof_that_exists(row: Row) -> None:
    assert row.stage in STAGES
    assert row.id[0] in GROUPS
    assert bool(row.by) == (row.stage != "open")
    assert [said for proof in row.by if (said := problem(proof))] == []


def test_a_stage_has_its_kind_of_proof() -> None:
    for row in rows():
        if row.stage == "plan":
            assert any(proof.startswith(("PRL", "T:")) for proof in row.by), row.id
        if row.stage == "preflight":
            assert any(proof.startswith("P:") for proof in row.by), row.id


def test_no_row_is_given_twice() -> None:
    ids = [row.id for row in rows()]
    assert len(ids) == len(set(ids)) == 247


def test_the_share_that_is_caught() -> None:
    caught, total, _ = coverage()
    assert caught / total >= SHARE


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "faults.md").read_text() == document(), "python -m tests.faults.update"


def test_a_proof_that_is_not_there_is_seen() -> None:
    for proof in ("PRL999", "T:tests/no.py::test_x", "P:nothing", "C:nothing", "C:no_script_has[nothing]"):
        assert problem(proof)
