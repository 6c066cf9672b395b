"""What forward and backward of one micro-batch hold: the stash, a layer's working set, the head, gathered KV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from prlc.compiler.ledger.widths import LayerShape, kv_width
from prlc.schema.plan import LedgerEntry
from prlc.schema.trainer import HEAD_CHUNK_TOKENS

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.layout import TrainerLayout
    from prlc.schema.memory import TrainerMemory, Widths

Head = Literal["fused", "unfused"]
MICRO = "head, backward"  # phases in which the stash of a micro-batch is whole
GROUP_ROWS = 128  # rows that an FP8 grouped GEMM pads each expert's group to (DeepGEMM get_mk_alignment)


def _counted(shape: LayerShape, widths: Widths, imbalance: float) -> str:
    text = f"{widths.hidden:g} x hidden {shape.hidden} + {widths.attention:g} x qkv {shape.attention}"
    if shape.ffn:
        text += f" + {widths.ffn:g} x ffn {shape.ffn}"
    if shape.routed_hidden:
        text += f" + ({widths.routed_hidden:g} x top k x hidden {shape.routed_hidden}"
        text += f" + {widths.routed_ffn:g} x top k x expert {shape.routed_ffn})"
        text += f" x imbalance {imbalance:g}" if imbalance != 1 else ""
    return text


def stash(
    facts: ModelFacts,
    shape: LayerShape,
    layout: TrainerLayout,
    numbers: TrainerMemory,
    tokens: int,
    width: int,
    activation_offload: bool,
) -> LedgerEntry:
    """What all layers keep between forward and backward; under offload one layer's worth is on the device."""
    layers = 1 if activation_offload else facts.layers
    row = width * facts.hidden
    text = f"{width} B x hidden {facts.hidden}"
    if layout.activation_checkpoint != "full":
        if layout.activation_checkpoint == "selective":  # the policy keeps nothing of routed rows
            kept = numbers.selective_share * shape.token_bytes(numbers.live, 0.0)
        else:
            kept = shape.token_bytes(numbers.saved, numbers.imbalance if layout.ep > 1 else 1.0)
        more = int(numbers.scale * kept * width / 2)
        row += more
        text = f"({text} + {more} B kept)"
    return LedgerEntry(
        what="activation stash",
        phase=MICRO,
        bytes=row * layers * tokens,
        formula=f"{text} x {layers} layers x {tokens} tokens"
        + (", the rest in host memory" if activation_offload else ""),
    )


def working_set(
    shape: LayerShape, layout: TrainerLayout, numbers: TrainerMemory, tokens: int, width: int
) -> LedgerEntry:
    """Everything alive of the one layer in backward: its recomputed forward and its gradients."""
    spread = numbers.imbalance if layout.ep > 1 else 1.0
    token = numbers.scale * shape.token_bytes(numbers.live, spread) * width / 2
    text = f"{numbers.scale:g} x ({_counted(shape, numbers.live, spread)}) B"
    if layout.activation_checkpoint == "none":
        kept = int(numbers.scale * shape.token_bytes(numbers.saved, spread) * width / 2)
        token = max(0.0, token - kept)
        text = f"({text} - {kept} B in the stash)"
    size = token * tokens
    if width != 2:
        text += f" x {width / 2:g}"
    text += f" x {tokens} tokens"
    return LedgerEntry(what="layer working set", phase="backward", bytes=int(size), formula=text)


def padded_groups(facts: ModelFacts, layout: TrainerLayout, numbers: TrainerMemory) -> LedgerEntry:
    """Rows that FP8 grouped GEMMs add: at most one group's worth for each local expert."""
    experts = facts.num_experts // layout.ep
    routed = numbers.live.routed_hidden * facts.expert_hidden + numbers.live.routed_ffn * facts.moe_intermediate
    return LedgerEntry(
        what="padded expert rows",
        phase="backward",
        bytes=int(numbers.scale * experts * GROUP_ROWS * routed),
        formula=f"{numbers.scale:g} x {experts} experts x {GROUP_ROWS} rows x {routed:.0f} B",
    )


def context_exchange(facts: ModelFacts, layout: TrainerLayout, tokens: int, width: int) -> LedgerEntry:
    """What context parallelism holds of other ranks, and its gradients.

    Sparse latent attention gathers the latent rows of all ranks; other attention exchanges heads (DeepSpeed Ulysses,
    arXiv 2309.14509), with key heads copied where ranks outnumber them.
    """
    if facts.attention_kind == "dsa":
        row = kv_width(facts)
        return LedgerEntry(
            what="gathered KV",
            phase="backward",
            bytes=2 * tokens * layout.cp * row * width,
            formula=f"(rows + gradients: 2) x {tokens} tokens x cp {layout.cp} x {row} x {width} B",
        )
    queries, keys = facts.heads * facts.head_dim, facts.heads if facts.kv_lora_rank else facts.kv_heads
    kv = max(keys, layout.cp) * (facts.head_dim + facts.v_head_dim)
    row = queries + kv + facts.heads * facts.v_head_dim
    return LedgerEntry(
        what="exchanged heads",
        phase="backward",
        bytes=2 * tokens * row * width,
        formula=f"(values + gradients: 2) x {tokens} tokens x (q {queries} + kv {kv} + output) x {width} B",
    )


def head(facts: ModelFacts, numbers: TrainerMemory, kind: Head, tokens: int, width: int, trained: bool) -> LedgerEntry:
    """Logits and what the head's backward makes of them; a fused head keeps one chunk's.

    Fused: fp32 logits of a chunk and their gradient in the compute dtype; the weight's gradient is summed in fp32
    and at the end copied to the compute dtype (prlc.runtime.trainer.head).
    """
    if kind == "unfused":
        size = int(tokens * facts.vocab * numbers.unfused_head * width / 2)
        text = f"{tokens} tokens x vocab {facts.vocab} x {numbers.unfused_head * width / 2:g} B"
    else:
        chunk = min(tokens, HEAD_CHUNK_TOKENS)
        size = chunk * facts.vocab * (4 + width)
        text = f"{chunk} tokens of a chunk x vocab {facts.vocab} x (4 + {width}) B"
        if trained:
            copy = width % 4  # a sum in fp32 needs none
            size += (4 + copy) * facts.vocab * facts.hidden
            text += f" + weight gradient and its copy: (4 + {copy}) B x vocab x hidden {facts.hidden}"
    size += 3 * tokens * facts.hidden * width
    text += f" + 3 x {tokens} tokens x hidden {facts.hidden} x {width} B: last states, their norm and gradient"
    return LedgerEntry(what="head", phase="head", bytes=size, formula=text)
