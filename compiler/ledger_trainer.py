"""Memory of the most loaded trainer rank, part by part, in bytes.

Coefficients of the working set: 12 slopes of prime-rl's full-finetune baselines of January 2026 (Qwen3 0.6B, 4B,
30B-A3B), mean residual 2.1 %; in-sample, and newer software is lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.schema.plan import Ledger, LedgerEntry

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.hardware import Gpu

GIB = 2**30
FIXED_CUDA = 2 * GIB  # CUDA context and NCCL, 1 to 2 GiB a process
FIXED_CPU = GIB // 2  # interpreter, torch and gloo
ALLOCATOR_RESERVE = 0.06  # reserved exceeds allocated; SimuMax plans to 94 % of the card
HEAD_CHUNK = 1024  # tokens of one chunk of the fused LM head
STATE_BYTES = 16  # fp32 master, fp32 gradient and two Adam moments of one parameter
STATE_BYTES_OFFLOADED = 4  # fp32 master; gradient and moments live on the host (GLM-5.2 on 32 GPUs: 87 GiB a rank)
IMBALANCE = 1.2  # tokens of the most loaded expert rank over the mean; an assumption
PER_HIDDEN, PER_FFN, PER_ROUTED = 68.8, 5.1, 20.0  # bytes a token, bf16
SELECTIVE_SHARE = 0.5  # of a layer's working set kept by selective recompute; an assumption
NORMAL_BUFFER = GIB  # DeepEP high-throughput: 1 GiB NVLink, and 1 GiB RDMA where ep leaves the node


def active_ffn(facts: ModelFacts) -> int:
    """Feed-forward width that one token passes in the widest layer."""
    return max(facts.intermediate, facts.top_k * facts.moe_intermediate + facts.shared_intermediate)


def unit_params(facts: ModelFacts, ep: int) -> tuple[int, int]:
    """Parameters of one FSDP unit, the widest decoder layer: (outside routed experts, routed experts at ep)."""
    outside = {"embedding", "lm_head", "routed_experts", "norms"}
    dense = sum(count for name, count in facts.params.items() if name not in outside) // max(1, facts.layers)
    routed = facts.params.get("routed_experts", 0) // max(1, facts.moe_layers) // ep
    return dense, routed


def kv_width(facts: ModelFacts) -> int:
    """Elements a token that context parallelism gathers in a layer: K and V, or the one latent row."""
    if facts.kv_lora_rank:
        return facts.kv_lora_rank + facts.rope_dim
    return facts.kv_heads * (facts.head_dim + facts.v_head_dim)


def working_set(facts: ModelFacts, ep: int, width: int) -> float:
    """Bytes a local token of one layer during its recomputed backward; width: bytes of an activation."""
    routed = PER_ROUTED * facts.top_k * facts.hidden * (IMBALANCE if ep > 1 else 1.0)
    return (PER_HIDDEN * facts.hidden + PER_FFN * active_ffn(facts) + routed) * width / 2


def trainer_ledger(facts: ModelFacts, gpu: Gpu, layout: TrainerLayout, precision: str, seq_len: int) -> Ledger:
    """Ledger of one rank: `hbm` of a GPU, or `host` of one process where the device is a CPU.

    `precision` is fp32, bf16 or fp8 (masters are always fp32); `seq_len` bounds the tokens of a micro-batch.
    """
    cuda = gpu.device == "cuda"
    width = 4 if precision == "fp32" or not cuda else 2
    tokens = min(layout.micro_batch_tokens, -(-seq_len // layout.cp))
    shards = layout.dp_shard * layout.cp
    state = STATE_BYTES_OFFLOADED if layout.offload == "cpu" else STATE_BYTES
    dense, routed = unit_params(facts, layout.ep)
    unit = dense + routed
    entries = [
        LedgerEntry(
            what="sharded state",
            phase="always",
            bytes=facts.total_params * state // shards,
            formula=f"{facts.total_params} params x {state} B / (dp_shard {layout.dp_shard} x cp {layout.cp})"
            + (", gradient and moments in host memory" if layout.offload == "cpu" else ""),
        ),
        LedgerEntry(
            what="gathered units",
            phase="backward",
            bytes=2 * unit * width,
            formula=f"2 units x {width} B x ({dense} dense + {routed} routed at ep {layout.ep})",
        ),
        LedgerEntry(what="unsharded gradient", phase="backward", bytes=unit * 4, formula=f"4 B x {unit} of one unit"),
        *_activations(facts, layout, tokens, width),
        LedgerEntry(
            what="head",
            phase="forward",
            bytes=min(tokens, HEAD_CHUNK) * facts.vocab * (width + 4),
            formula=f"{min(tokens, HEAD_CHUNK)} tokens of a chunk x vocab {facts.vocab} x ({width} + 4) B",
        ),
    ]
    if precision == "fp8" and cuda:
        entries.append(
            LedgerEntry(
                what="fp8 weights",
                phase="backward",
                bytes=2 * unit,
                formula=f"{unit} of one unit, and its transpose",
            )
        )
    if layout.cp > 1:
        row = kv_width(facts)
        entries.append(
            LedgerEntry(
                what="gathered KV",
                phase="backward",
                bytes=tokens * layout.cp * row * width,
                formula=f"{tokens} tokens x cp {layout.cp} x {row} x {width} B",
            )
        )
    if cuda and layout.ep > 1:
        parts = 2 if layout.ep > layout.ranks_per_node else 1
        entries.append(
            LedgerEntry(
                what="expert all-to-all buffers",
                phase="always",
                bytes=parts * NORMAL_BUFFER,
                formula="1 GiB NVLink" + (" + 1 GiB RDMA" if parts == 2 else ""),
            )
        )
    fixed = FIXED_CUDA if cuda else FIXED_CPU
    what = "2 GiB: CUDA context and NCCL" if cuda else "0.5 GiB: interpreter, torch and gloo"
    entries.append(LedgerEntry(what="fixed", phase="always", bytes=fixed, formula=what))
    capacity = int(gpu.memory)
    if cuda:
        entries.append(
            LedgerEntry(
                what="allocator reserve",
                phase="always",
                bytes=int(ALLOCATOR_RESERVE * capacity),
                formula=f"{ALLOCATOR_RESERVE} x {capacity} B",
            )
        )
    return Ledger(role="trainer", resource="hbm" if cuda else "host", capacity=capacity, entries=tuple(entries))


def _activations(facts: ModelFacts, layout: TrainerLayout, tokens: int, width: int) -> tuple[LedgerEntry, LedgerEntry]:
    """What the forward keeps, and the working set of the layer in backward."""
    layer = working_set(facts, layout.ep, width)
    stash = width * facts.hidden * facts.layers * tokens
    formula = f"{width} B x hidden {facts.hidden} x {facts.layers} layers x {tokens} tokens"
    share = {"full": 0.0, "selective": SELECTIVE_SHARE, "none": 1.0}[layout.activation_checkpoint]
    if share:
        stash += int(share * layer * (facts.layers - 1) * tokens)
        formula += f" + {share:g} x {layer:.0f} B x {facts.layers - 1} other layers x {tokens} tokens"
    balance = f" x imbalance {IMBALANCE}" if layout.ep > 1 else ""
    return (
        LedgerEntry(what="checkpoint stash", phase="forward", bytes=stash, formula=formula),
        LedgerEntry(
            what="layer working set",
            phase="backward",
            bytes=int(layer * tokens),
            formula=f"({PER_HIDDEN} x hidden {facts.hidden} + {PER_FFN} x ffn {active_ffn(facts)} + {PER_ROUTED:g} x "
            f"top {facts.top_k} x hidden{balance}) B x {width / 2:g} x {tokens} tokens",
        ),
    )
