"""Rows of serving benchmarks -> cases: time between tokens, first tokens, throughput of wide expert parallelism."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.calibration.rows import Case, Row, Unsupported, degrees, gpu_of, model_of, number, predicted
from prlc.compiler.forecast.decode import ServeShape, coefficient, decode_cost, prefill_features, prefill_seconds

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates
    from prlc.schema.hardware import Gpu

FEW = 16  # requests at once up to which a first token waits for its own prefill rather than for those of others
CHUNK = 8192  # tokens a GPU of a prefill step, where a row does not say


@dataclass(frozen=True)
class Load:
    """A closed loop of one benchmark row on one server."""

    input: float
    output: float
    sequences: float


def serving(row: Row) -> tuple[ModelFacts, Gpu, ServeShape, Load, bool]:
    """(model, GPU, engine, load of one server, prefill apart). Raises Unsupported."""
    facts, gpu, layout = model_of(row), gpu_of(row), row["parallelism"]
    ways, world = degrees(layout), int(number(row["num_gpus"]) or 0)
    lengths, users = re.match(r"(\d+)/(\d+)", row["seq_len"]), re.search(r"concurrency (\d+)", row["batch"])
    if not lengths or not users or not ways.keys() & {"tp", "dp", "ep"} or not world:
        raise Unsupported("lengths, concurrency or layout not stated")
    ways.setdefault("dp", 1 if "tp" in ways else world)
    tp, dp, ep, etp = (ways.get(name, 1) for name in ("tp", "dp", "ep", "etp"))
    if "agg" in layout.split() and world == max(tp, dp) == ep * etp > 8:
        # such rows repeat the values of 8-GPU rows: the degrees were multiplied with each other when recorded
        tp, dp = (ep, dp) if tp > 1 else (tp, ep)
    framework = re.search(r"vllm|sglang|trt", layout.lower())
    name = {"trt": "trtllm"}.get(framework[0], framework[0]) if framework else "vllm"
    # TensorRT-LLM's DeepSeek-R1 rows with a version run at 0.62 to 0.71 of DeepSeek-V3's at equal layout:
    # multi-token prediction with one draft token, which the rows do not state
    draft = 1 if name == "trtllm" and "r1" in row["model"].lower() and re.search(r"\d+\.\d+\.\d+", layout) else 0
    drafted = re.search(r"mtp\s*=?\s*(\d)", layout.lower())
    precision = row.get("precision", "")
    shape = ServeShape(
        tp=tp,
        ep=ep if ep > 1 else 1,
        servers=dp,
        precision="fp8" if "fp8" in precision else "int4" if re.search("int4|w4|fp4", precision) else "bf16",
        low_latency=max(tp, ep) > 8 or "deepep" in layout.lower(),
        draft=int(drafted[1]) if drafted else draft,
        framework=name,
    )
    load = Load(float(lengths[1]), float(lengths[2]), int(users[1]) / dp)
    return facts, gpu, shape, load, "disagg" in layout or "P/D" in layout


def _group(facts: ModelFacts, s: ServeShape) -> str:
    return f"{s.framework} {facts.name}"


def step_terms(facts: ModelFacts, gpu: Gpu, rates: Rates, s: ServeShape, load: Load) -> dict[str, float]:
    """Terms of the time between two tokens of a sequence, prefills of others in between apart."""
    cost = decode_cost(facts, gpu, rates, s)
    room = rates.decode
    found = {}
    for name, value in cost.parts(max(1.0, load.sequences), load.input + load.output / 2).items():
        own = f"{name}@{s.framework}" if f"{name}@{s.framework}" in room else name
        balance = room["expert_balance"] if name == "experts" and s.ep > 1 else 1.0
        found[f"decode.{own}"] = value * balance / cost.accepted
    if facts.linear_layers:
        found["decode.layer_linear"] = facts.linear_layers / cost.accepted
    if facts.index_topk:
        found["decode.layer_sparse"] = facts.layers / cost.accepted
    return found


def turn_terms(facts: ModelFacts, gpu: Gpu, rates: Rates, s: ServeShape, tokens: float) -> dict[str, float]:
    """Terms of one prefill."""
    raw, room = prefill_features(facts, gpu, rates, s, tokens, 0.0), rates.prefill
    found = {
        f"prefill.{n}@{s.framework}" if f"{n}@{s.framework}" in room else f"prefill.{n}": v for n, v in raw.items()
    }
    floor = prefill_seconds(raw, rates, facts, s.framework) - sum(
        coefficient(room, name, s.framework) * value for name, value in raw.items()
    )
    return {**found, "prefill.layer_sparse": floor / room["layer_sparse"]} if floor > 0 else found


def decode_case(row: Row, rates: Rates) -> Case:
    facts, gpu, shape, load, apart = serving(row)
    terms = step_terms(facts, gpu, rates, shape, load)
    if not apart:  # in steady state every sequence is prefilled once while the others decode `output` tokens
        share = load.sequences / load.output
        terms.update({n: v * share for n, v in turn_terms(facts, gpu, rates, shape, load.input).items()})
    return Case(row["id"], _group(facts, shape), "decode", gpu.name, float(row["value"]) / 1e3, terms)


def prefill_case(row: Row, rates: Rates) -> Case:
    facts, gpu, shape, load, _ = serving(row)
    terms = turn_terms(facts, gpu, rates, shape, load.input)
    once = predicted(terms, rates)
    request = f"request@{shape.framework}"
    terms[f"prefill.{request}" if request in rates.prefill else "prefill.request"] = 1.0
    step = predicted(step_terms(facts, gpu, rates, shape, load), rates)
    busy = load.sequences * once / (load.output * step + load.sequences * once)
    if load.sequences > 1:
        terms["prefill.queue"] = (load.sequences - 1) * busy * once
    quantity = "prefill" if load.sequences * shape.servers <= FEW else "prefill in a queue"
    return Case(row["id"], _group(facts, shape), quantity, gpu.name, float(row["value"]) / 1e3, terms)


def throughput_case(row: Row, rates: Rates) -> Case:
    """Tokens a second of one GPU of a wide group -> seconds of a step. Raises Unsupported: the batch is not stated."""
    facts, gpu = model_of(row), gpu_of(row)
    lengths = [float(part) for part in re.findall(r"\d+", row["seq_len"])]
    ways, world = degrees(row["parallelism"]), int(number(row["num_gpus"]) or 0)
    ep = ways.get("ep", world)
    tp = ways.get("tp", 1)
    text = row["batch"] + " " + row["parallelism"]
    if not lengths or not world:
        raise Unsupported("lengths or GPUs not stated")
    precision = "fp8" if "fp8" in row.get("precision", "") else "bf16"
    framework = re.search(r"vllm|sglang|trt", (row["source"] + row["parallelism"]).lower())
    name = {"trt": "trtllm"}.get(framework[0], framework[0]) if framework else "vllm"
    shape = ServeShape(
        tp=tp,
        ep=ep,
        servers=max(1, ep // tp),
        precision=precision,
        low_latency=row["phase"] == "decode",
        framework=name,
    )
    value = float(row["value"])
    if row["phase"] == "prefill":
        stated = re.search(r"(\d+) tokens", text)
        tokens = float(stated[1]) if stated else CHUNK
        raw = turn_terms(facts, gpu, rates, shape, lengths[0])
        return Case(
            row["id"], _group(facts, shape) + " wide", "prefill throughput", gpu.name, tokens / value,
            {n: v * tokens / lengths[0] for n, v in raw.items()},
        )  # fmt: skip
    stated = re.search(r"batch\D{0,12}(\d+)\s*(?:per GPU|/GPU|a GPU)?", text)
    users = re.search(r"concurrency (\d+)", text)
    if not stated and not users:
        raise Unsupported("sequences a GPU not stated")
    each = float(stated[1]) if stated else float(users[1]) / world  # type: ignore[index]
    output = lengths[1] if len(lengths) > 1 else 0.0
    load = Load(lengths[0], output, each * tp)
    terms = step_terms(facts, gpu, rates, shape, load)
    return Case(row["id"], _group(facts, shape) + " wide", "decode", gpu.name, each / value, terms)
