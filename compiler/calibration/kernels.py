"""Rows of collectives and of single GEMMs -> cases. Nothing is fitted to them: they check the catalog's rates."""

from __future__ import annotations

import re

from prlc.compiler.calibration.rows import Case, Row, Unsupported, gpu_of, number
from prlc.compiler.forecast.rates import Rates

BUS = 340e9  # bytes/s a GPU of NVLink in one node, as the catalog's clusters state it
# bytes over the bus for one byte of the buffer, n GPUs (nccl-tests, PERFORMANCE.md)
TRAFFIC = {
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "all_reduce": lambda n: 2 * (n - 1) / n,
}
WIDTH = {"bf16": 2, "fp8": 1, "fp8_block": 1}


def collective_case(row: Row, rates: Rates) -> Case:
    """A collective over one node. Raises Unsupported."""
    kind = row["model"].strip()
    count, elements = number(row["num_gpus"]), number(row["seq_len"] or row["batch"])
    if kind not in TRAFFIC or row["gpu"] != "H200" or not count or not elements:
        raise Unsupported(f"no formula predicts {kind}")
    moved = 2 * elements * TRAFFIC[kind](count)  # fp16
    value = float(row["value"])
    measured = value / 1e6 if row["metric"] == "latency" else moved / (value * 1e9)
    predicted = rates.network["collective_start"] + moved / BUS
    size = "small" if row["metric"] == "latency" else "large"
    return Case(row["id"], f"nccl {kind} {size}", "collective", "h200", measured, {"": predicted})


def gemm_case(row: Row) -> Case:
    """One dense GEMM: FLOPs at the GPU's rate, or its bytes, whichever takes longer. Raises Unsupported."""
    shape = re.search(r"(\d+)x(\d+)x(\d+)", row["model"])
    cube = re.search(r"(\d+)\^3", row["model"])
    width = WIDTH.get(row["precision"])
    if "grouped" in row["model"] or not (shape or cube) or width is None:
        raise Unsupported(f"no formula predicts {row['model']}")
    m, n, k = (int(part) for part in shape.groups()) if shape else (int(cube[1]),) * 3  # type: ignore[index]
    gpu, flops = gpu_of(row), 2.0 * m * n * k
    rate = gpu.fp8_dense if width == 1 and gpu.fp8_dense else gpu.bf16_dense
    moved = (n * k + m * k) * width + 2 * m * n
    predicted = max(flops / rate, moved / gpu.memory_bandwidth)
    kind = "few rows" if m < 1024 else "many rows"
    group = f"{row['gpu']} {row['precision']} {kind}"
    return Case(row["id"], group, "GEMM", gpu.name, flops / (float(row["value"]) * 1e12), {"": predicted})
