"""Recorded experts as the engine sends them: a base64 .npy of [rows, layers, top_k], one row a token."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PayloadError(ValueError):
    """Routing that cannot belong to the sample."""


def decode_routing(text: str) -> NDArray[Any]:
    """Array of an engine answer. Raises PayloadError on anything but a 3-D unsigned .npy."""
    try:
        array = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    except (binascii.Error, ValueError, EOFError, OSError) as error:
        raise PayloadError(f"not a base64 .npy: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 3 or array.dtype.kind not in "iu":
        raise PayloadError("routing must be an integer array [rows, layers, top_k]")
    return array


def encode_routing(array: NDArray[Any]) -> str:
    """The engine's form of an array; inverse of decode_routing."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return base64.b64encode(stream.getvalue()).decode()


def align_routing(
    rows: NDArray[Any], tokens: int, moe_layers: list[int], experts: int
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Pad an answer's rows to the sample and keep its mixture-of-experts layers alone.

    rows: [R, all layers, top_k] for the first R <= tokens tokens (the last sampled one has none).
    Returns (ids [tokens, len(moe_layers), top_k] uint8 up to 256 experts, else uint16; valid uint8 [tokens]).
    Raises PayloadError on too many rows, missing layers, ids out of range or twice in one row.
    """
    if len(rows) > tokens:
        raise PayloadError(f"{len(rows)} rows for {tokens} tokens")
    if moe_layers and max(moe_layers) >= rows.shape[1]:
        raise PayloadError(f"layer {max(moe_layers)} asked of {rows.shape[1]} recorded layers")
    kept = rows[:, moe_layers].astype(np.int64)
    if kept.size and (kept.min() < 0 or kept.max() >= experts):
        raise PayloadError(f"expert ids outside 0..{experts - 1}")
    ordered = np.sort(kept, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise PayloadError("an expert appears twice in one row")
    dtype = np.uint8 if experts <= 256 else np.uint16
    ids = np.zeros((tokens, len(moe_layers), rows.shape[2]), dtype)
    ids[: len(rows)] = kept
    valid: np.ndarray = np.zeros(tokens, np.uint8)
    valid[: len(rows)] = 1
    return ids, valid
