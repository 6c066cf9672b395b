"""Spec text to what the compiler works on: the spec, its model, GPU and cluster, and where each stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from prlc import catalog
from prlc.catalog import Cluster, Gpu, Model, ModelFacts
from prlc.compiler.forecast.rates import rates
from prlc.schema import positions
from prlc.schema.check import check
from prlc.schema.diagnostics import Diagnostic, Note, Span
from prlc.schema.run import RunSpec

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A spec with everything that it names."""

    spec: RunSpec
    model: Model
    facts: ModelFacts
    gpu: Gpu
    cluster: Cluster
    spans: Mapping[tuple[str | int, ...], Span]  # of values
    keys: Mapping[tuple[str | int, ...], Span]
    model_source: str | Path = ""  # name or path that the model was read from
    cluster_source: str | Path = ""

    def span(self, path: tuple[str | int, ...]) -> Span | None:
        """Where the value of `path` stands, else what would hold it; None where the spec has neither."""
        while path and path not in self.spans:
            path = path[:-1]
        return self.spans.get(path) if path else None

    def key_span(self, path: tuple[str | int, ...]) -> Span | None:
        """Where the key of `path` stands, else what `span` finds."""
        return self.keys.get(path) or self.span(path)

    def said(self, *path: str | int) -> bool:
        """True where the spec itself has a value at this place."""
        return path in self.spans


def resolve(text: str, filename: str) -> tuple[Resolved | None, list[Diagnostic]]:
    """Read a spec and look up what it names. None when anything is wrong; all of it is in the list.

    Paths in the spec are relative to the spec's own folder.
    """
    spec, found = check(RunSpec, text, filename)
    document = positions.load(text, filename)
    # names are looked up even where other keys are wrong, so that all mistakes are reported at once
    said = document.data if isinstance(document.data, dict) else {}
    spans, folder = document.value_spans, Path(filename).parent

    def look_up(code: str, key: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except catalog.CatalogError as error:
            notes = (Note("help", error.help),) if error.help else ()
            found.append(Diagnostic(code, "error", error.message, spans.get((key,)), "", notes))
            return None

    def own_file(cls: type[T], place: str | Path) -> bool:
        """True where a file of the user's has mistakes: each is reported at its own line."""
        if not isinstance(place, Path) or place.suffix not in (".yaml", ".yml"):
            return False
        try:
            mistakes = check(cls, place.read_text("utf-8"), str(place))[1]
        except (OSError, UnicodeDecodeError):
            return False
        found.extend(mistakes)
        return bool(mistakes)

    model, facts, cluster, gpu = None, None, None, None
    where: str | Path = ""
    place: str | Path = ""
    if isinstance(name := said.get("model"), str):
        where = _near(name, folder, catalog.names("model"))
        if not own_file(Model, where):
            model = look_up("PRL201", "model", lambda: catalog.model(where))
        if model is not None:
            facts = look_up("PRL204", "model", lambda: catalog.facts(model))
    if isinstance(name := said.get("cluster"), str):
        place = _near(name, folder, catalog.names("cluster"))
        if not own_file(Cluster, place):
            cluster = look_up("PRL202", "cluster", lambda: catalog.cluster(place))
        if cluster is not None:
            kind = cluster.node.gpu
            gpu = look_up("PRL203", "cluster", lambda: catalog.gpu(kind))
        if cluster is not None and gpu is not None and gpu.device == "cpu":  # a process has no more than its node
            gpu = dataclasses.replace(gpu, memory=min(gpu.memory, cluster.node.memory))
    if spec is not None and gpu is not None:
        named = gpu.name if spec.kernels == "auto" else _near(spec.kernels, folder, catalog.names("kernels"))
        kind = gpu.name
        if look_up("PRL206", "kernels", lambda: rates(str(named), kind)) is None:
            return None, found
        # the forecast reads it by this name, from wherever the spec was read
        spec = dataclasses.replace(spec, kernels=str(named))
    if spec is None or model is None or facts is None or cluster is None or gpu is None:
        return None, found
    return Resolved(
        spec=spec,
        model=model,
        facts=facts,
        gpu=gpu,
        cluster=cluster,
        spans=spans,
        keys=document.key_spans,
        model_source=where,
        cluster_source=place,
    ), found


def _near(name: str, folder: Path, known: tuple[str, ...]) -> str | Path:
    """A catalog name as it is; a path as seen from the spec's folder."""
    if name in known:
        return name
    beside = folder / Path(name).expanduser()
    return beside if beside.exists() else name
