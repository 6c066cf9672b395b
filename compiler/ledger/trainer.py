"""Memory of the most loaded trainer rank, phase by phase, in bytes.

Phases: `head` (all layers' stash and the head), `backward` (the stash and one layer's working set, the first layer
of the backward pass), `optimizer`, `sync` (weights being published). Coefficients: catalog/kernels/memory-trainer.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.memory import trainer_memory
from prlc.catalog.replay import replay_bytes
from prlc.compiler.ledger.activations import MICRO, Head, context_exchange, head, padded_groups, stash, working_set
from prlc.compiler.ledger.buffers import process_entries, trainer_communicators
from prlc.compiler.ledger.units import Adapters, gathered, published, sharded_state, update
from prlc.compiler.ledger.widths import kv_width, layer_shape
from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.hardware import Gpu
    from prlc.schema.memory import TrainerMemory

__all__ = ["IMBALANCE", "OUTSIDE_TORCH", "Adapters", "kv_width", "torch_reserved", "trainer_ledger"]

FIXED_CPU = 2**29  # interpreter, torch and gloo
IMBALANCE = trainer_memory().imbalance
OUTSIDE_TORCH = ("CUDA context", "NCCL buffers", "allocator reserve")


def trainer_ledger(
    facts: ModelFacts,
    gpu: Gpu,
    layout: TrainerLayout,
    precision: str,
    seq_len: int,
    *,
    adapters: Adapters | None = None,
    head_kind: Head = "fused",
    activation_offload: bool = False,
    moments_offload: bool = False,
    numbers: TrainerMemory | None = None,
) -> Ledger:
    """Ledger of one rank: `hbm` of a GPU, or `host` of one process where the device is a CPU.

    `precision` is fp32, bf16 or fp8 (masters are always fp32); `seq_len` bounds the tokens of a micro-batch.
    `adapters`: LoRA, the rest frozen. `head_kind` "unfused" keeps the logits of all tokens. `activation_offload`: the
    stash lives in host memory; `moments_offload`: so do Adam's moments between steps. `numbers`: another calibration
    than the catalog's default.
    """
    cuda = gpu.device == "cuda"
    numbers = numbers or trainer_memory()
    width = 4 if precision == "fp32" or not cuda else 2
    fp8 = precision == "fp8" and cuda
    tokens = min(layout.micro_batch_tokens, -(-seq_len // layout.cp))
    shape = layer_shape(facts)
    trained = adapters is None
    entries = sharded_state(facts, layout, adapters, moments_offload)
    entries += gathered(facts, shape, layout, numbers, width, trained, fp8)
    entries.append(stash(facts, shape, layout, numbers, tokens, width, activation_offload))
    entries.append(working_set(shape, layout, numbers, tokens, width))
    if fp8 and facts.num_experts:
        entries.append(padded_groups(facts, layout, numbers))
    if layout.cp > 1:
        entries.append(context_exchange(facts, layout, tokens, width))
    entries.append(head(facts, numbers, head_kind, tokens, width, trained))
    if facts.num_experts:
        entries.append(_routing(facts, tokens))
    if layout.offload != "cpu" and trained:
        entries += [update(facts, shape, layout, numbers), published(facts, layout, width)]
    entries += _process(layout, numbers, gpu)
    return Ledger(
        role="trainer",
        resource="hbm" if cuda else "host",
        capacity=int(gpu.memory),
        entries=tuple(entries),
        band=numbers.band,
    )


def torch_reserved(ledger: Ledger) -> int:
    """Bytes of the peak that torch's allocator reserves: what torch.cuda.max_memory_reserved reports."""
    return sum(entry.bytes for entry in ledger.peak if entry.what not in OUTSIDE_TORCH)


def _routing(facts: ModelFacts, tokens: int) -> LedgerEntry:
    """Recorded experts of the micro-batch, whole and as one contiguous part a layer."""
    row = replay_bytes(facts).kept
    return LedgerEntry(
        what="replayed routing",
        phase=MICRO,
        bytes=2 * tokens * row,
        formula=f"2 x {tokens} tokens x {row} B ({facts.moe_layers} layers x top {facts.top_k})",
    )


def _process(layout: TrainerLayout, numbers: TrainerMemory, gpu: Gpu) -> list[LedgerEntry]:
    if gpu.device != "cuda":
        what = "0.5 GiB: interpreter, torch and gloo"
        return [LedgerEntry(what="fixed", phase="always", bytes=FIXED_CPU, formula=what)]
    found = list(process_entries(numbers, trainer_communicators(layout)))
    capacity = int(gpu.memory)
    size = int(numbers.reserve * capacity)
    text = f"{numbers.reserve:g} x {capacity} B"
    found.append(LedgerEntry(what="allocator reserve", phase="always", bytes=size, formula=text))
    return found
