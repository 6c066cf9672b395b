"""Rows of a measurements file -> cases: what the formulas say of the same configuration, beside what was measured."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from prlc import catalog
from prlc.catalog import Gpu, Model, ModelFacts

if TYPE_CHECKING:
    from prlc.compiler.forecast.rates import Rates

Row = Mapping[str, str]
GPUS = {  # as measurements write them
    "H200": "h200", "H100": "h100", "H100 80GB HBM3": "h100", "H100-96GB-HBM2e-500W": "h100", "H800": "h100",
    "B200": "b200", "RTX A6000": "rtx-a6000",
}  # fmt: skip
MODELS = {
    "llama3-8b": "llama-3.1-8b", "llama-3-8b": "llama-3.1-8b",
    "llama3-70b": "llama-3.1-70b", "llama-3-70b": "llama-3.1-70b",
    "llama3-405b": "llama-3.1-405b", "llama-3-405b": "llama-3.1-405b", "kimi-k2": "kimi-k2-instruct",
}  # fmt: skip
SAME = {"deepseek-r1": "deepseek-v3", "deepseek-v3.1": "deepseek-v3", "glm-5.1": "glm-5"}  # one architecture


@dataclass(frozen=True)
class Case:
    """One measured value with the terms that should explain it, in seconds."""

    row: str  # ids, the first of equal rows
    group: str  # left out together: architecture, software
    quantity: str  # trainer, decode, prefill, exchange, sync
    gpu: str
    measured: float
    terms: Mapping[str, float]  # coefficient -> feature
    copies: int = 1


def predicted(terms: Mapping[str, float], rates: Rates) -> float:
    """Seconds by the coefficients of `rates`; a term is named room.coefficient."""
    rooms = {"trainer": rates.trainer, "decode": rates.decode, "prefill": rates.prefill}
    split = ((name.partition("."), value) for name, value in terms.items())
    return sum(rooms[room][name] * value for (room, _, name), value in split)


@dataclass(frozen=True)
class Skipped:
    """A row that is not scored, and why."""

    row: str
    reason: str


class Unsupported(ValueError):
    """Why a row cannot be turned into a case."""


def read(path: Path) -> list[Row]:
    """Rows of a CSV with the columns of benchmarks/data/measurements.csv. Raises ValueError: a column is missing."""
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[Row] = [dict(row) for row in csv.DictReader(file)]
    wanted = {"id", "use", "model", "phase", "gpu", "num_gpus", "parallelism", "seq_len", "batch", "metric", "value"}
    missing = wanted - set(rows[0] if rows else ())
    if missing:
        raise ValueError(f"{path} has no column {', '.join(sorted(missing))}")
    return rows


def gpu_of(row: Row) -> Gpu:
    """The catalog's GPU of a row. Raises Unsupported."""
    name = GPUS.get(row["gpu"])
    if name is None:
        raise Unsupported(f"the catalog has no GPU {row['gpu']!r}")
    return _gpu(name)


@cache
def _gpu(name: str) -> Gpu:
    found = catalog.measured("gpu", name)
    return found if isinstance(found, Gpu) else catalog.gpu(name)


def model_of(row: Row, layers: int = 0) -> ModelFacts:
    """The architecture of a row, cut to `layers` where that is not 0. Raises Unsupported."""
    name = re.sub(r"[ _/()]+", "-", row["model"].rpartition("/")[2].lower()).removeprefix("meta-").strip("-")
    words = name.split("-")
    # 'Qwen3-235B-A22B-Instruct-2507-FP8': what is said after the architecture is dropped, last word first
    while words:
        known = MODELS.get("-".join(words), "-".join(words))
        try:
            return _facts(SAME.get(known, known), layers)
        except catalog.CatalogError:
            words.pop()
    raise Unsupported(f"the catalog has no model {row['model']!r}")


@cache
def _facts(name: str, layers: int) -> ModelFacts:
    found = catalog.measured("model", name)
    model = found if isinstance(found, Model) else catalog.model(name)
    if layers:
        model = dataclasses.replace(model, config={**model.config, "num_hidden_layers": layers})
    return catalog.facts(model)


DEGREE = re.compile(r"(?<![A-Za-z])(FSDP|ETP|TP|PP|CP|EP|VP|DP|mbc)\s*=?\s*(\d+)", re.IGNORECASE)


def degrees(text: str) -> dict[str, int]:
    """'FSDP32 TP8; dp=4 ep1' -> {'fsdp': 32, 'tp': 8, 'dp': 4, 'ep': 1}; the last of equal names counts."""
    return {name.lower(): int(value) for name, value in DEGREE.findall(text.replace("_", " "))}


def number(text: str) -> float | None:
    match = re.search(r"\d+(\.\d+)?", text.replace(",", ""))
    return float(match[0]) if match else None
