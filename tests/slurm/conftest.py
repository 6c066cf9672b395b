"""One emulated cluster for all Slurm tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, unavailable


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, idle."""
    if why := unavailable():
        pytest.skip(f"no Slurm here: {why}")
    it = Cluster(tmp_path_factory.mktemp("slurm"), nodes=3)
    try:
        it.start()
        yield it
    finally:
        it.stop()
