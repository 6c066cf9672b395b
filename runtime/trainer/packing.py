"""Samples into rows, rows into micro-batches: the same on every rank, and equal in count and shape on all.

Samples lie end to end in rows as wide as the longest sample needs; positions restart and a document number
keeps attention inside a sample. Rows go to ranks in turn, fullest first, back and forth, so that ranks get
about the same number of tokens. What does not fill up is padding of document -1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prlc.runtime.transport.batches import Batch

ROUND = 8


class PackingError(ValueError):
    """A sample that does not fit a micro-batch."""


@dataclass(frozen=True)
class Plan:
    """rows[rank][micro_batch] is a list of rows, a row a list of sample numbers; `width` in tokens."""

    width: int
    rows: list[list[list[list[int]]]]


def plan_rows(lengths: list[int], ranks: int, micro_batch_tokens: int) -> Plan:
    """Place samples of these lengths. Raises PackingError when the longest exceeds micro_batch_tokens."""
    longest = max(lengths)
    if longest > micro_batch_tokens:
        raise PackingError(f"a sample of {longest} tokens exceeds micro_batch_tokens = {micro_batch_tokens}")
    width = min(-(-longest // ROUND) * ROUND, micro_batch_tokens)
    order = sorted(range(len(lengths)), key=lambda sample: (-lengths[sample], sample))
    rows: list[list[int]] = []
    room: list[int] = []
    for sample in order:
        place = next((i for i, free in enumerate(room) if free >= lengths[sample]), None)
        if place is None:
            rows.append([])
            room.append(width)
            place = len(rows) - 1
        rows[place].append(sample)
        room[place] -= lengths[sample]
    fullest = sorted(range(len(rows)), key=lambda i: (room[i], i))
    shares: list[list[list[int]]] = [[] for _ in range(ranks)]
    for turn, row in enumerate(fullest):
        cycle, place = divmod(turn, ranks)
        shares[place if cycle % 2 == 0 else ranks - 1 - place].append(rows[row])
    most = max(len(share) for share in shares)
    count = -(-most // max(1, micro_batch_tokens // width))
    height = -(-most // count)
    padded = [share + [[]] * (count * height - len(share)) for share in shares]
    return Plan(width, [[share[m * height : (m + 1) * height] for m in range(count)] for share in padded])


@dataclass
class Rows:
    """One micro-batch of a rank, [rows, width] each; the label of a position is the sample's next token.

    mask, engine, advantages, versions speak of the label. routed: [rows, width, layers, top_k], -1 unknown.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    mask: NDArray[np.bool_]
    engine: NDArray[np.float32]
    advantages: NDArray[np.float32]
    versions: NDArray[np.int64]
    routed: NDArray[np.int64] | None

    @property
    def sequences(self) -> NDArray[np.int64]:
        """Number of each position's sample, from 0, unique in the micro-batch; padding has some number, too."""
        samples = int(self.documents.max(initial=0)) + 1
        return np.maximum(self.documents, 0) + samples * np.arange(len(self.documents))[:, None]


def fill_rows(batch: Batch, rows: list[list[int]], width: int) -> Rows:
    """Lay samples into one micro-batch. Raises PackingError on a trained first token or doubled experts."""
    shape = (len(rows), width)

    def full(value: float, dtype: Any) -> NDArray[Any]:
        return np.full(shape, value, dtype)

    routed = None
    if batch.routed_experts is not None:
        routed = np.full((*shape, *batch.routed_experts.shape[1:]), -1, np.int64)
    out = Rows(
        full(0, np.int64),
        full(0, np.int64),
        full(-1, np.int64),
        full(0, np.int64),
        full(0, np.bool_),
        full(0, np.float32),
        full(0, np.float32),
        full(-1, np.int64),
        routed,
    )
    for r, samples in enumerate(rows):
        at = 0
        for number, sample in enumerate(samples):
            low, high = int(batch.sample_offsets[sample]), int(batch.sample_offsets[sample + 1])
            size = high - low
            if batch.loss_mask[low]:
                raise PackingError(f"sample {sample}: its first token is trained, but nothing predicts it")
            here, labelled = slice(at, at + size), slice(at, at + size - 1)
            out.tokens[r, here] = batch.tokens[low:high]
            out.positions[r, here] = np.arange(size)
            out.documents[r, here] = number
            out.labels[r, labelled] = batch.tokens[low + 1 : high]
            out.mask[r, labelled] = batch.loss_mask[low + 1 : high] != 0
            out.engine[r, labelled] = batch.logprobs[low + 1 : high]
            out.advantages[r, labelled] = batch.advantages[low + 1 : high]
            out.versions[r, labelled] = batch.versions[low + 1 : high]
            if routed is not None and batch.routed_experts is not None and batch.routed_valid is not None:
                ids = batch.routed_experts[low:high].astype(np.int64)
                ids[batch.routed_valid[low:high] == 0] = -1
                ordered = np.sort(ids, axis=-1)
                if ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any():
                    raise PackingError(f"sample {sample}: an expert is recorded twice for one token")
                routed[r, here] = ids
            at += size
    return out


def trained_only(rows: Rows) -> Rows:
    """The same rows with -1 for labels that are not trained: the head passes over them."""
    return replace(rows, labels=np.where(rows.mask, rows.labels, -1))
