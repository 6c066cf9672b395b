"""Sharded state of a rank, and the FSDP units whose weights or gradients are whole on it for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.ledger.activations import MICRO
from prlc.compiler.ledger.widths import LayerShape
from prlc.schema.plan import LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.memory import TrainerMemory

MASTER, GRADIENT, MOMENTS = 4, 4, 8  # bytes a parameter: all fp32
MOMENTUM = 4  # bytes a parameter of Muon's matrices
# Newton-Schulz of one matrix: gathered in bf16, x and three products of its size in bf16, the result in fp32
ORTHOGONAL = 12  # bytes a parameter


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """LoRA: `copies` adapters of one rank are resident, one of them is trained; the rest of the model is frozen."""

    rank: int
    copies: int = 1


def adapter_params(facts: ModelFacts, rank: int) -> int:
    """Parameters of one adapter over the projections of grouped-query attention and every feed-forward."""
    hidden, queries = facts.hidden, facts.heads * facts.head_dim
    keys, values = facts.kv_heads * facts.head_dim, facts.kv_heads * facts.v_head_dim
    attention = 2 * (hidden + queries) + 2 * hidden + keys + values
    dense = 3 * (hidden + facts.intermediate) if facts.dense_layers else 0
    experts = 3 * (facts.expert_hidden + facts.moe_intermediate) * facts.num_experts
    shared = 3 * (hidden + facts.shared_intermediate) if facts.shared_intermediate else 0
    return rank * (facts.layers * attention + facts.dense_layers * dense + facts.moe_layers * (experts + shared))


def moment_bytes(facts: ModelFacts, optimizer: str) -> int:
    """Optimizer state of all parameters: two moments, or under Muon one for all but embedding, head and norms."""
    if optimizer == "adamw":
        return MOMENTS * facts.total_params
    others = sum(facts.params.get(name, 0) for name in ("embedding", "lm_head", "norms"))
    return MOMENTUM * (facts.total_params - others) + MOMENTS * others


def sharded_state(
    facts: ModelFacts, layout: TrainerLayout, adapters: Adapters | None, moments_offload: bool
) -> list[LedgerEntry]:
    """Masters, gradients and moments of a rank's shard. With offload "cpu" all three are in host memory: FSDP2's
    CPU offload keeps sharded parameters there, and their gradients and moments with them. `moments_offload`: the
    moments alone are there between steps, and on the device for the update.
    """
    shards = layout.dp_shard * layout.cp
    over = f"(dp_shard {layout.dp_shard} x cp {layout.cp})"
    params = facts.total_params

    def entry(what: str, count: int, width: int, phase: str = "always") -> LedgerEntry:
        return LedgerEntry(
            what=what, phase=phase, bytes=count * width // shards, formula=f"{count} params x {width} B / {over}"
        )

    if layout.offload == "cpu":
        return []
    found = [entry("master weights" if adapters is None else "frozen weights", params, MASTER)]
    if adapters is None:
        when = "optimizer" if moments_offload else "always"
        size = moment_bytes(facts, layout.optimizer)
        what = f"{params} params x {MOMENTS} B" if layout.optimizer == "adamw" else f"{size} B of momentum and moments"
        moments = LedgerEntry(what="optimizer moments", phase=when, bytes=size // shards, formula=f"{what} / {over}")
        return [*found, entry("gradients", params, GRADIENT), moments]
    each = adapter_params(facts, adapters.rank)
    return [
        *found,
        entry("adapters", each * adapters.copies, MASTER),
        entry("adapter gradients and moments", each, GRADIENT + MOMENTS),
    ]


def gathered(
    facts: ModelFacts,
    shape: LayerShape,
    layout: TrainerLayout,
    numbers: TrainerMemory,
    width: int,
    trained: bool,
    fp8: bool,
) -> list[LedgerEntry]:
    """Whole weights and gradients. Experts are gathered over their own mesh: a unit holds 1 / ep of them."""
    unit, routed = shape.unit, shape.routed // layout.ep
    whole = unit + routed
    ends = facts.params.get("embedding", 0) + facts.params.get("lm_head", 0)
    names = "embedding" if facts.tied else "embedding + head"
    units = numbers.gathered_units
    found = [
        LedgerEntry(
            what="embedding and head",
            phase=MICRO,
            bytes=ends * width,
            formula=f"{ends} params of {names} x {width} B, whole through forward and backward",
        ),
        LedgerEntry(
            what="gathered units",
            phase="backward",
            bytes=units * whole * width,
            formula=f"{units} units x {width} B x ({unit} dense + {routed} routed at ep {layout.ep})",
        ),
    ]
    if layout.dp_shard * layout.cp > 1:
        end = facts.vocab * facts.hidden
        found.append(
            LedgerEntry(
                what="all-gather staging",
                phase=MICRO,
                bytes=end * width,
                formula=f"{end} params of the largest end unit x {width} B, copied out of the collective's buffer",
            )
        )
    if trained:
        end = facts.vocab * facts.hidden
        found += [
            LedgerEntry(
                what="head gradient",
                phase="backward",
                bytes=end * width,
                formula=f"{end} params x {width} B, whole until its unit is reduced",
            ),
            LedgerEntry(
                what="gradients awaiting reduction",
                phase="backward",
                bytes=whole * (width + 4),
                formula=f"{whole} of one unit x {width} B, and x 4 B as input of the reduce-scatter",
            ),
        ]
    if fp8:
        found.append(
            LedgerEntry(
                what="fp8 weights",
                phase="backward",
                bytes=2 * whole,
                formula=f"{whole} of one unit x 1 B, and its transpose",
            )
        )
    return found


def update(facts: ModelFacts, shape: LayerShape, layout: TrainerLayout, numbers: TrainerMemory) -> LedgerEntry:
    """Temporaries of the update: AdamW's of all parameters at once, or two of the largest shard where it goes tensor
    by tensor; Muon's of the largest matrix, which it gathers unless whole experts lie on the rank.
    """
    shards = layout.dp_shard * layout.cp
    experts, dense = shape.routed // 3, facts.hidden * max(facts.intermediate, facts.heads * facts.head_dim)
    if layout.optimizer == "muon":
        held = experts // shards if shards <= facts.num_experts else experts
        count = max(held, dense)
        size, text = ORTHOGONAL * count, f"{count} params of the largest matrix, gathered, x {ORTHOGONAL} B"
    elif numbers.update:
        size = int(facts.total_params * numbers.update) // shards
        text = f"{facts.total_params} params x {numbers.update:g} B / {shards} shards"
    else:
        count = max(facts.vocab * facts.hidden, experts, dense)
        size, text = 2 * 4 * count // shards, f"2 x 4 B x {count} params of the largest tensor / {shards} shards"
    return LedgerEntry(what="optimizer temporaries", phase="optimizer", bytes=size, formula=text)


def published(facts: ModelFacts, layout: TrainerLayout, width: int) -> LedgerEntry:
    """Weight sync: every shard cast to the published dtype at once (prlc.runtime.trainer.weights)."""
    shards = layout.dp_shard * layout.cp
    return LedgerEntry(
        what="weights to publish",
        phase="sync",
        bytes=facts.total_params * width // shards,
        formula=f"{facts.total_params} params x {width} B / {shards} shards",
    )
