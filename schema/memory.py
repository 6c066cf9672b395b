"""Coefficients of the memory ledgers: catalog/kernels/memory-*.yaml. Formulas are code, numbers are data."""

from __future__ import annotations

from dataclasses import dataclass

from prlc.schema.fields import Bytes, doc


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Bytes that a token takes for each element of a width of the layer, at 2 bytes an activation."""

    hidden: float = doc("For each element of the hidden state.", minimum=0)
    attention: float = doc("For each element of all queries, keys and values of the token.", minimum=0)
    ffn: float = doc("For each element of a dense or shared feed-forward.", minimum=0)
    routed_hidden: float = doc("For each element of the hidden state, of each of the top k copies.", minimum=0)
    routed_ffn: float = doc("For each element of a routed expert's feed-forward, of each copy.", minimum=0)


@dataclass(frozen=True, kw_only=True)
class TrainerMemory:
    """A training process."""

    name: str = doc("The file's name.")
    software: str = doc("Software and time that its numbers were measured on.")
    live: Widths = doc("Alive at the fullest point of one layer's backward pass, its recomputed forward included.")
    saved: Widths = doc("What a layer keeps from forward to backward without recompute.")
    scale: float = doc("Fitted factor on `live` and `saved`: measured over counted.", minimum=0)
    selective_share: float = doc("Of `live`, what a layer keeps under selective recompute.", minimum=0, maximum=1)
    gathered_units: int = doc("FSDP units whose weights are whole at once: the current and the prefetched.", minimum=1)
    update: float = doc(
        "Bytes of temporaries a sharded parameter when all are updated at once; 0: one tensor at a time.", minimum=0
    )
    unfused_head: float = doc("Bytes for each logit of a head that keeps its logits.", minimum=0)
    imbalance: float = doc("Tokens of the fullest expert rank over the mean.", minimum=1)
    context: Bytes = doc("CUDA context and libraries of a process.")
    communicator: Bytes = doc("NCCL's buffers of one communicator.")
    reserve: float = doc("Share of the device left free.", minimum=0, maximum=1)
    band: tuple[float, float] = doc("Measured over predicted, low and high end of the left-out rows.")
    sources: tuple[str, ...] = doc("Where each number comes from, and its residual.")


@dataclass(frozen=True, kw_only=True)
class EngineMemory:
    """A vLLM worker process."""

    name: str = doc("The file's name.")
    software: str = doc("Version that its numbers hold for.")
    hidden: float = doc("Bytes a token of a step for each element of the hidden state.", minimum=0)
    attention: float = doc("Bytes a token for each element of its queries, keys and values.", minimum=0)
    ffn: float = doc("Bytes a token for each element of a dense or shared feed-forward.", minimum=0)
    logits: float = doc("Bytes for each logit of the sequences that are sampled in one step.", minimum=0)
    latent_rows: int = doc("Most cached rows that a prefill step of latent attention expands at once.", minimum=0)
    sparse_factor: int = doc("Rows of sparse attention's prefill workspace over max_model_len.", minimum=0)
    indexer_logits: Bytes = doc("Most bytes of the indexer's logits.")
    graphs: Bytes = doc("Pools of the captured CUDA graphs.")
    block_tokens: int = doc("Tokens of one KV block; larger where a recurrent state needs a larger page.", minimum=1)
    states: int = doc("Recurrent states that a running sequence holds: the current and the last cached.", minimum=1)
    context: Bytes = doc("CUDA context and libraries of a process.")
    communicator: Bytes = doc("NCCL's buffers of one communicator.")
    sources: tuple[str, ...] = doc("Where each number comes from.")
