"""Rows of all-to-all kernels and of single attention layers -> cases."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from prlc import catalog
from prlc.compiler.calibration.rows import Case, Row, Unsupported, degrees, gpu_of, model_of, number
from prlc.compiler.forecast.decode import ServeShape, decode_cost, prefill_features
from prlc.compiler.forecast.network import (
    LOW_LATENCY_TOKENS,
    NORMAL_TOKENS,
    all_to_all_seconds,
    low_latency_seconds,
)
from prlc.compiler.forecast.rates import Rates, rates_of

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts

CONGESTED = 64  # ranks from which the normal kernels' rows ran three times too long
KERNELS = {  # curve, its tokens, formula
    "low-latency": ("low_latency", LOW_LATENCY_TOKENS, low_latency_seconds),
    "normal": ("normal", NORMAL_TOKENS, all_to_all_seconds),
}


def exchange_cases(rows: list[Row], rates: Rates) -> list[Case]:
    """One case a (kernel, degree, tokens) of an H200 whose dispatch and combine are both there.

    At the table's own tokens the degree is taken out of the table first, so the case is an interpolation; the ends
    of the table have nothing to be interpolated from and are left out.
    """
    pairs: dict[tuple[str, int, int], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        kernel = next((k for k in KERNELS if k in row["parallelism"]), None)
        if row["metric"] in ("dispatch_latency", "combine_latency") and row["gpu"] == "H200" and kernel:
            tokens = int(number(row["seq_len"] or row["batch"]) or 0)
            pairs[kernel, degrees(row["parallelism"]).get("ep", 0), tokens][row["metric"]] = row
    facts = catalog.facts(catalog.model("deepseek-v3"))
    found = []
    for (kernel, ep, tokens), pair in pairs.items():
        curve, reference, seconds = KERNELS[kernel]
        degrees_known = [int(x) for x, _ in rates.document.curves[curve].points]
        if len(pair) < 2 or (kernel == "normal" and ep >= CONGESTED):
            continue
        used = rates
        if tokens == reference:
            if ep in (degrees_known[0], degrees_known[-1]):
                continue
            used = _without(rates, curve, ep)
        measured = sum(float(row["value"]) for row in pair.values()) / 1e6
        ids = "+".join(sorted(row["id"] for row in pair.values()))
        value = seconds(used, float(tokens), facts, ep)
        found.append(Case(ids, f"deepep {kernel} ep{ep}", "exchange", "h200", measured, {"": value}))
    return found


def _without(rates: Rates, curve: str, ep: int) -> Rates:
    document = rates.document
    points = tuple(point for point in document.curves[curve].points if point[0] != ep)
    changed = dataclasses.replace(document.curves[curve], points=points)
    return rates_of(dataclasses.replace(document, curves={**document.curves, curve: changed}))


def module_case(row: Row, rates: Rates) -> Case:
    """One sparse-attention layer with its projections and indexer, in prefill or in decode. Raises Unsupported."""
    if "module, one layer" not in row["model"]:
        raise Unsupported(f"no formula predicts {row['model']}")
    gpu = gpu_of(row)
    facts = _one_attention_layer(model_of({**row, "model": row["model"].split()[0]}))
    shape = ServeShape(tp=1, ep=1, precision="fp8", framework="sglang")
    size = re.search(r"(prefix|context) (\d+)", row["parallelism"])
    if size is None:
        raise Unsupported("prefix not stated")
    past, batch = float(size[2]), float(number(row["batch"]) or 1)
    measured = float(row["value"]) / 1e3
    if "context module" in row["model"]:
        raw = prefill_features(facts, gpu, rates, shape, float(number(row["seq_len"]) or 0), past, batch)
        terms = {f"prefill.{name}": value for name, value in raw.items()}
    else:
        parts = decode_cost(facts, gpu, rates, shape).parts(batch, past)
        kept = ("layer", "dense", "kv")
        terms = {**{f"decode.{name}": parts[name] for name in kept}, "decode.layer_sparse": 1.0}
    return Case(row["id"], f"sglang {facts.name} module", "attention layer", gpu.name, measured, terms)


def _one_attention_layer(facts: ModelFacts) -> ModelFacts:
    """The model cut to one attention layer with its own indexer, no feed-forward, no head."""
    parts = {name: facts.params[name] // facts.layers for name in ("attention", "norms") if name in facts.params}
    parts["indexer"] = facts.params["indexer"] // facts.indexer_layers
    total = sum(parts.values())
    return dataclasses.replace(
        facts,
        layers=1, dense_layers=0, moe_layers=0, attention_layers=1, indexer_layers=1, num_experts=0, top_k=0,
        vocab=0, params=parts, total_params=total, active_params=total,
    )  # fmt: skip
