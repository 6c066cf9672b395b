"""The quick cases of the fault matrix; `python -m tests.slurm.faults` runs the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import unavailable
from tests.slurm.faults import CASES, lab_for

QUICK = ("engine-killed", "trainer-killed", "early-failure", "second-submit", "time-limit")


@pytest.mark.slurm
@pytest.mark.parametrize("name", QUICK)
def test_case(name: str, tmp_path: Path) -> None:
    if why := unavailable():
        pytest.skip(f"no Slurm here: {why}")
    with lab_for(name, tmp_path) as case:
        assert CASES[name](case)
