"""Rows of training steps -> cases. Layouts that only other software has (tensor, pipeline) are priced as well."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prlc.compiler.calibration.rows import Case, Row, Unsupported, degrees, gpu_of, model_of, number
from prlc.compiler.forecast.rates import RUNTIME
from prlc.compiler.forecast.trainer import TrainShape, attention_flops, features, gemm_params

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates

SOFTWARE = {
    "PRL": "prime-rl",
    "TT": "torchtitan",
    "MBR": "megatron",
    "MBS": "megatron",
    "SMX": "megatron",
    "PRLC": RUNTIME,
}
NVLINK = {"b200": 680e9, "rtx-a6000": 20e9}  # bytes/s a GPU; twice an H200's, and PCIe 4


def training_case(row: Row, rates: Rates) -> Case:
    """Raises Unsupported."""
    gpu, layout = gpu_of(row), row["parallelism"]
    layers = re.search(r"_l(\d+)(_|$)", layout + "_" + row["model"])
    facts = model_of(row, int(layers[1]) if layers else 0)
    length, world = number(row["seq_len"]), number(row["num_gpus"])
    if not length or not world:
        raise Unsupported("sequence length or GPUs not stated")
    ways = degrees(layout)
    tp, pp, cp, ep = (ways.get(name, 1) for name in ("tp", "pp", "cp", "ep"))
    dp = max(1, int(world) // (tp * pp * cp))
    family = row["id"].partition("-")[0]
    software = SOFTWARE.get(family, family)
    megatron = software == "megatron"
    micro, samples = _batches(row, dp, pp)
    spans = -(-int(world) // 8)
    shape = TrainShape(
        tokens=samples * length / cp,
        micro_batches=micro,
        context=length,
        shards=dp * cp,
        cp=cp, ep=ep, tp=tp, pp=pp,
        virtual=ways.get("vp", 1) if pp > 1 else 1,
        nodes=spans,
        intra=NVLINK.get(gpu.name, 340e9),
        precision="fp8" if "fp8" in row.get("precision", "") else "bf16",
        recompute=_recompute(layout, megatron),
        lora="lora" in (layout + row["model"]).lower(),
        fused_head=bool(re.search(r"\brl\b", layout)),
        compiled="eager" not in layout,
        attention="attention_fa2" if "flash_attention_2" in layout and gpu.name != "rtx-a6000" else "attention",
        stash_offload="AC=Offload" in layout,
        sharded_gathers=not megatron,
    )  # fmt: skip
    terms = features(facts, gpu, rates, shape)
    if pp > 1:  # the bubble stretches what fills the pipeline
        bubble = 1 + (pp - 1) / (micro * shape.virtual)
        terms = {n: v if n.startswith(("fsdp", "optim")) else v * bubble for n, v in terms.items()}
    measured = _seconds(row, facts, samples * length * dp, length, world, shape.lora)
    mode = "lora" if shape.lora else "sft" if re.search(r"\bsft\b", layout) else "full"
    group = f"{software} {facts.name} {mode} {gpu.name}"
    own = {f"{n}@{software}" if f"{n}@{software}" in rates.trainer else n: v for n, v in terms.items()}
    return Case(row["id"], group, "trainer", gpu.name, measured, {f"trainer.{n}": v for n, v in own.items()})


def _seconds(row: Row, facts: ModelFacts, tokens: float, length: float, world: float, lora: bool) -> float:
    """Seconds of a step of `tokens` tokens on all GPUs, from the metric of the row. Raises Unsupported.

    Megatron's model FLOPs are 6 a parameter and token and 3 forwards of causal attention: its rows with both metrics
    agree within 0.5 %.
    """
    value = float(row["value"])
    if row["metric"] == "step_time":
        return value
    if row["metric"] == "tokens_per_s_per_gpu":
        return tokens / (value * world)
    if lora or facts.linear_layers:
        raise Unsupported("model FLOPs of adapters and recurrent layers are counted in other ways")
    each = 6 * sum(gemm_params(facts)) + 3 * attention_flops(facts, length, 0.0) / length
    return tokens * each / (value * 1e12 * world)


def _batches(row: Row, dp: int, pp: int) -> tuple[int, float]:
    """(micro-batches, samples) of one data-parallel rank in a step."""
    text = row["batch"]
    mbc = degrees(row["parallelism"]).get("mbc") or int(
        number((re.search(r"(\d+) micro-batches", text) or [""])[0]) or 0
    )
    size = re.search(r"MBS (\d+)", text)
    if whole := re.search(r"GBS (\d+)", text):
        samples = int(whole[1]) / dp
        return max(1, round(samples / (int(size[1]) if size else 1))), samples
    if local := re.search(r"local (\d+)", text):
        return int(local[1]) if pp > 1 else 1, float(local[1])  # torchtitan's pipelines take one sequence at a time
    if mbc:
        return mbc, float(mbc * (int(size[1]) if size else 1))
    raise Unsupported("batch not stated")


def _recompute(layout: str, megatron: bool) -> str:
    if "no AC" in layout:
        return "none"
    if "selective AC" in layout or "SAC" in layout:
        return "selective"
    if "full AC" in layout or "AC=Recompute" in layout or "full_recompute" in layout or "full recompute" in layout:
        return "full"
    if "AC=Offload" in layout:
        return "full"  # the checkpointed inputs go to the host, the layers are recomputed all the same
    return "none" if megatron else "full"
