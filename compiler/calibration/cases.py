"""All rows of a measurements file -> cases and the rows that no formula prices, each with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prlc.compiler.calibration.exchange import exchange_cases, module_case
from prlc.compiler.calibration.kernels import collective_case, gemm_case
from prlc.compiler.calibration.rows import Case, Row, Skipped, Unsupported
from prlc.compiler.calibration.serving import decode_case, prefill_case, throughput_case
from prlc.compiler.calibration.training import SOFTWARE, training_case

if TYPE_CHECKING:
    from prlc.compiler.forecast.rates import Rates

SCORED = ("calibrate",)
# Megatron-Bridge has no row to calibrate on; its own coefficients rest on rows that show its spread between releases
ALSO = {"megatron": ("noise",)}


def cases(
    rows: Iterable[Row], rates: Rates, uses: tuple[str, ...] = SCORED, also: bool = True
) -> tuple[list[Case], list[Skipped]]:
    """Equal rows become one case. `also`: with the rows of ALSO."""
    rows = list(rows)
    found: dict[tuple[object, ...], Case] = {}
    timed = {_run(row) for row in rows if row["metric"] in ("tokens_per_s_per_gpu", "step_time")}
    skipped: list[Skipped] = []
    for row in rows:
        try:
            software = SOFTWARE.get(row["id"].partition("-")[0], "")
            if row["use"] not in (*uses, *(ALSO.get(software, ()) if also else ())):
                raise Unsupported(f"use is {row['use']}")
            if not _positive(row["value"]):
                raise Unsupported("its value is no positive number")
            if row["metric"] in ("model_tflops_per_gpu", "throughput_all_gpus") and _run(row) in timed:
                raise Unsupported("the same run's time is priced")
            case = _case(row, rates)
        except Unsupported as error:
            skipped.append(Skipped(row["id"], str(error)))
            continue
        key = (case.group, case.quantity, case.gpu, case.measured, *sorted(case.terms.items()))
        held = found.get(key)
        found[key] = dataclasses.replace(held, copies=held.copies + 1) if held else case
    exchanged = exchange_cases([row for row in rows if row["use"] in uses and _positive(row["value"])], rates)
    inside = {name for case in exchanged for name in case.row.split("+")}
    return [*found.values(), *exchanged], [s for s in skipped if s.row not in inside]


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def _run(row: Row) -> tuple[str, ...]:
    """What rows of one run share."""
    return tuple(row[key] for key in ("source", "model", "gpu", "num_gpus", "parallelism", "seq_len", "batch"))


def _case(row: Row, rates: Rates) -> Case:
    metric, phase = row["metric"], row["phase"]
    if phase == "train" and metric in ("step_time", "tokens_per_s_per_gpu", "model_tflops_per_gpu"):
        return training_case(row, rates)
    if phase == "decode" and metric.startswith(("tpot", "itl")):
        return decode_case(row, rates)
    if phase == "prefill" and metric.startswith("ttft"):
        return prefill_case(row, rates)
    if phase in ("decode", "prefill") and metric in ("tokens_per_s_per_gpu", "tokens_per_s_per_decode_gpu"):
        return throughput_case(row, rates)
    if phase == "kernel" and metric == "latency":
        return module_case(row, rates)
    if phase == "kernel" and metric == "throughput":
        return gemm_case(row)
    if phase == "comm" and metric in ("bus_bandwidth", "latency"):
        return collective_case(row, rates)
    raise Unsupported(f"no formula predicts {phase} {metric}")
