"""Coefficients of the memory ledgers: every file of the catalog, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from prlc.catalog.errors import CatalogError
from prlc.catalog.memory import engine_memory, trainer_memory

FOLDER = Path(__file__).parents[2] / "catalog" / "kernels"
TRAINERS = sorted(path.stem for path in FOLDER.glob("memory-trainer*.yaml"))


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_file_is_named_after_itself_and_tells_its_sources(name: str) -> None:
    found = trainer_memory(name)
    assert found.name == name
    low, high = found.band
    assert low < 1 < high
    told = " ".join(found.sources)
    fitted = ("scale", "update") if name != "memory-trainer" else ("live", "saved", "scale", "selective_share", "band")
    assert all(f"{field}:" in told for field in fitted)


def test_the_engine_file_tells_the_source_of_each_number() -> None:
    found = engine_memory()
    told = " ".join(found.sources)
    for field in ("hidden", "logits", "latent_rows", "sparse_factor", "graphs", "block_tokens", "states", "context"):
        assert field in told


def test_a_file_by_path_may_replace_the_catalogs(tmp_path: Path) -> None:
    text = (FOLDER / "memory-trainer.yaml").read_text().replace("scale: 0.94", "scale: 0.5")
    path = tmp_path / "own.yaml"
    path.write_text(text)
    assert trainer_memory(str(path)).scale == 0.5


def test_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        trainer_memory("no-such-file")
    path = tmp_path / "odd.yaml"
    path.write_text("name: odd\nscales: 1\n")
    with pytest.raises(CatalogError, match="not a valid file"):
        trainer_memory(str(path))
