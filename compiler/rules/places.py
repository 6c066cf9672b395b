"""Where a fact that a rule used stands: the line of the catalog, model or cluster file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc import catalog
from prlc.schema import positions
from prlc.schema.diagnostics import Related

if TYPE_CHECKING:
    from pathlib import Path

    from prlc.catalog.load import Kind
    from prlc.compiler.resolve import Resolved

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


def of_model(resolved: Resolved, keys: tuple[str, ...], label: str) -> tuple[Related, ...]:
    """The line of the model's file that has the first of these config keys; () where none has it."""
    # a catalog file nests the config, a config.json is one, and a vision model's nests the text model's
    paths: list[tuple[str, ...]] = []
    for key in keys:
        paths += [("config", key), ("text_config", key), (key,)]
    return _line("model", resolved.model_source, paths, label)


def of_cluster(resolved: Resolved, path: tuple[str, ...], label: str) -> tuple[Related, ...]:
    """The line of the cluster's file that has this path; () where it has none."""
    return _line("cluster", resolved.cluster_source, [path], label)


def _line(kind: Kind, source: str | Path, paths: list[tuple[str, ...]], label: str) -> tuple[Related, ...]:
    read = catalog.text(kind, source) if source else None
    if read is None:
        return ()
    name, text = read
    spans = positions.load(text, name).value_spans
    lines = text.splitlines()
    for path in paths:
        span = spans.get(path)
        if span is not None:
            return (Related(span, lines[span.line - 1], label),)
    return ()
