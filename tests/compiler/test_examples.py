"""Every example is a document of its schema."""

from pathlib import Path

import pytest
from prlc.schema.codec import load
from prlc.schema.hardware import Cluster
from prlc.schema.run import RunSpec

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_spec_is_valid(path: Path) -> None:
    spec = load(RunSpec, path)
    assert spec.algorithm.batch_size % spec.algorithm.group_size == 0


@pytest.mark.parametrize("path", sorted((EXAMPLES / "clusters").glob("*.yaml")), ids=lambda p: p.stem)
def test_cluster_is_valid(path: Path) -> None:
    assert load(Cluster, path).nodes > 0
