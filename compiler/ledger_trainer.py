"""Memory of the most loaded trainer rank, part by part (bytes). Method: docs, 'trainer memory'."""

from __future__ import annotations

from dataclasses import dataclass

from prlc.compiler.layout import TrainerLayout
from prlc.schema.plan import LedgerEntry

GIB = 2**30
FIXED = 2 * GIB  # CUDA context and NCCL, 1-2 GiB a process
ALLOCATOR_RESERVE = 0.06  # SimuMax plans to 94 % of the card; reserved exceeds allocated
HEAD_CHUNK = 4096  # tokens of one chunk of the fused LM head


@dataclass(frozen=True, kw_only=True)
class TrainerShape:
    """What the ledger needs to know of a model; parameter counts are of the whole main model."""

    layers: int
    moe_layers: int
    hidden: int
    vocab: int
    dense_params: int  # everything but routed experts
    routed_params: int
    active_ffn_width: int  # of one token: top_k x expert width + shared width, or the dense width
    top_k: int
    gathered_kv_width: int  # elements a token that cp gathers (MLA, DSA: the latent, 576)


def trainer_ledger(
    shape: TrainerShape,
    mesh: TrainerLayout,
    *,
    tokens: int,
    capacity: int,
    imbalance: float = 1.2,
) -> tuple[LedgerEntry, ...]:
    """Entries for one rank. `tokens`: one micro-batch after the cp split; capacity: bytes of the GPU.

    Coefficients of the working set: Qwen3 rows of January 2026, mean residual 2.1 %.
    """
    params = shape.dense_params + shape.routed_params
    shards = mesh.dp_shard * mesh.cp
    per_param = 8 if mesh.offload == "cpu" else 16
    dense_unit = shape.dense_params // max(1, shape.layers)
    routed_unit = shape.routed_params // max(1, shape.moe_layers) // mesh.ep
    unit = dense_unit + routed_unit
    width = 68.8 * shape.hidden + 5.1 * shape.active_ffn_width + 20.0 * shape.top_k * shape.hidden * imbalance
    return (
        LedgerEntry(
            what="sharded state",
            phase="always",
            bytes=params * per_param // shards,
            formula=f"{params} params x {per_param} B / (dp_shard {mesh.dp_shard} x cp {mesh.cp})",
        ),
        LedgerEntry(
            what="gathered units",
            phase="backward",
            bytes=unit * 2 * 2,
            formula=f"2 units x 2 B x ({dense_unit} dense + {routed_unit} routed at ep {mesh.ep})",
        ),
        LedgerEntry(
            what="unsharded gradient", phase="backward", bytes=unit * 4, formula=f"1 unit x 4 B x {unit}"
        ),
        LedgerEntry(
            what="checkpoint stash",
            phase="forward",
            bytes=2 * shape.hidden * shape.layers * tokens,
            formula=f"2 B x hidden {shape.hidden} x layers {shape.layers} x {tokens} tokens",
        ),
        LedgerEntry(
            what="layer working set",
            phase="backward",
            bytes=int(width * tokens),
            formula=f"(68.8 x hidden + 5.1 x ffn {shape.active_ffn_width} + 20 x {shape.top_k} x hidden"
            f" x imbalance {imbalance}) x {tokens} tokens",
        ),
        LedgerEntry(
            what="gathered KV",
            phase="forward",
            bytes=tokens * mesh.cp * shape.gathered_kv_width * 2 if mesh.cp > 1 else 0,
            formula=f"{tokens} tokens x cp {mesh.cp} x {shape.gathered_kv_width} x 2 B, only for cp > 1",
        ),
        LedgerEntry(
            what="head",
            phase="forward",
            bytes=min(tokens, HEAD_CHUNK) * shape.vocab * 6,
            formula=f"{min(tokens, HEAD_CHUNK)} tokens x vocab {shape.vocab} x (2 + 4) B",
        ),
        LedgerEntry(what="fixed", phase="always", bytes=FIXED, formula="2 GiB CUDA context and NCCL"),
        LedgerEntry(
            what="allocator reserve",
            phase="always",
            bytes=int(capacity * ALLOCATOR_RESERVE),
            formula=f"{ALLOCATOR_RESERVE} x {capacity} B",
        ),
    )
