"""Rows of memory measurements -> the trainer ledger of the same configuration.

Columns as in data/memory.csv; the layout is read from `parallelism`, e.g. "FSDP2 dp=8 ep=1 cp=1; rl LoRA r16 x4
adapters; AC=Offload" or "FSDP128; selective AC; compile".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prlc.catalog.memory import trainer_memory
from prlc.compiler.calibration.rows import Unsupported, gpu_of, model_of
from prlc.compiler.layout import TrainerLayout
from prlc.compiler.ledger.trainer import Adapters, trainer_ledger
from prlc.schema.memory import TrainerMemory
from prlc.schema.plan import Ledger

MEASURED = ("peak_reserved_memory_per_gpu", "peak_memory_per_gpu")
JUNE = "memory-trainer-prime-rl-2026-06"


@dataclass(frozen=True)
class Case:
    """One row: what was measured in GiB (None: it failed) and how to build its ledger."""

    row: str
    use: str
    kind: str  # full, sft, lora
    group: str  # left out together
    label: str
    measured: float | None
    why: str  # of a failure
    attention: str
    arguments: Mapping[str, Any]

    def ledger(self, numbers: TrainerMemory) -> Ledger:
        """The ledger under these coefficients."""
        return trainer_ledger(**self.arguments, numbers=numbers)

    @property
    def software(self) -> str:
        """Name of the coefficients that its software has."""
        return JUNE if "2026-06" in self.group else "memory-trainer"


def _degree(text: str, name: str) -> int:
    found = re.search(rf"\b{name}=?(\d+)", text)
    return int(found[1]) if found else 1


def _recompute(text: str) -> str:
    if "selective AC" in text:
        return "selective"
    return "full" if "AC=" in text or "full AC" in text else "none"


def case(row: Mapping[str, str]) -> Case:
    """The case of a row. Raises Unsupported for layouts that the trainer does not have."""
    text, world = row["parallelism"], int(row["num_gpus"])
    if re.search(r"\b(TP|PP|tp|pp)\d+", text.replace("_", " ")):
        raise Unsupported("tensor or pipeline parallelism, which the trainer does not have")
    if re.search(r"\bfp8\b", row["precision"]) and "FSDP" not in text:
        raise Unsupported("fp8 of another framework")
    torchtitan = row["id"].startswith("TT")
    local = int(found[1]) if (found := re.search(r"local (\d+)", row["batch"])) else 1
    tokens = int(row["seq_len"]) * local
    cp, ep = _degree(text, "cp"), _degree(text, "ep")
    per_node = min(8, world)
    layout = TrainerLayout(
        nodes=tuple(range(max(1, world // 8))),
        ranks_per_node=per_node,
        dp_replicate=1,
        dp_shard=world // cp,
        cp=cp,
        ep=ep,
        offload="none",
        activation_checkpoint=_recompute(text),  # type: ignore[arg-type]
        micro_batch_tokens=tokens // cp,
    )
    lora = re.search(r"LoRA r(\d+) x(\d+)", text)
    kind = "lora" if lora else "sft" if "sft" in text or torchtitan else "full"
    facts = model_of({**row, "model": row["model"].removesuffix("-Instruct-2507")})
    june = "2026-06" in row["notes"]
    software = "torchtitan 2024-12" if torchtitan else f"prime-rl {'2026-06' if june else '2026-01'}"
    group = f"{software}, {world} GPUs" if torchtitan else f"{software}, {facts.name}"
    kept = "offloaded stash" if "AC=Offload" in text or june else _recompute(text) + " recompute"
    eager = ", eager" if "eager" in text else ""
    measured = float(row["value"]) if row["metric"] in MEASURED else None
    return Case(
        row=row["id"],
        use=row["use"],
        kind=kind,
        group=group,
        label=f"{facts.name}, {world} x {row['gpu']}, {tokens} tokens, {row['precision'].split()[0]}, {kept}{eager}",
        measured=measured,
        why="" if measured is not None else row["notes"],
        attention=found[0] if (found := re.search(r"flash_attention_\d", text)) else "",
        arguments={
            "facts": facts,
            "gpu": gpu_of(row),
            "layout": layout,
            "precision": "bf16",  # masters and activations are the same; fp8 weights are cast a unit at a time
            "seq_len": tokens,
            "adapters": Adapters(rank=int(lora[1]), copies=int(lora[2])) if lora else None,
            "head_kind": "unfused" if kind == "sft" else "fused",
            "activation_offload": "AC=Offload" in text or june,
            "moments_offload": june,
        },
    )


def read(path: Path) -> tuple[list[Case], list[tuple[str, str]]]:
    """(cases, (row, reason) of those without one). Raises KeyError where a column is missing."""
    found, skipped = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["phase"] != "train" or row["metric"] not in (*MEASURED, "outcome"):
                continue
            try:
                found.append(case(row))
            except Unsupported as error:
                skipped.append((row["id"], str(error)))
    return found, skipped


def numbers_of(case: Case) -> TrainerMemory:
    """The catalog's coefficients for the software of a case."""
    return trainer_memory(case.software)
