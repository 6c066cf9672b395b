"""Where nothing fits, larger clusters are looked at within reason, and the answer says that none was enough."""

from __future__ import annotations

from pathlib import Path

import yaml
from prlc import catalog
from prlc.compiler.plan import plan
from prlc.compiler.resolve import resolve
from prlc.compiler.search.misses import most_nodes
from prlc.schema import codec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def starved(folder: Path) -> tuple[str, str]:
    """The one-node example on hosts of 24 GiB, which no number of nodes mends: text and file name of its spec."""
    cluster = yaml.safe_load(codec.dump(catalog.cluster("h200-1x8")))
    cluster["node"]["memory"] = "24GiB"
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    document = yaml.safe_load((EXAMPLES / "qwen3-30b-a3b-1x8-h200.yaml").read_text())
    document["cluster"] = "cluster.yaml"
    return yaml.safe_dump(document), str(folder / "run.yaml")


def test_no_number_of_nodes_is_enough(tmp_path: Path) -> None:
    made, found = plan(*starved(tmp_path))
    assert made is None
    (error,) = [d for d in found if d.code == "PRL400"]
    assert "host memory" in error.message
    assert any("no number of nodes" in note.text for note in error.notes)


def test_larger_clusters_are_looked_at_within_reason(tmp_path: Path) -> None:
    small, _ = resolve(*starved(tmp_path))
    large, _ = resolve((EXAMPLES / "glm-5.1-swe-28x8-h200.yaml").read_text(), str(EXAMPLES / "run.yaml"))
    assert small is not None
    assert large is not None
    assert (most_nodes(small), most_nodes(large)) == (16, 56)
