"""The engine's routing payload: kept layers, missing rows, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from prlc.runtime.replay.payload import PayloadError, align_routing, decode_routing, encode_routing


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 3, 8)).argsort(-1)[..., :2].astype(np.uint8)


def test_round_trip_and_alignment() -> None:
    sent = rows(4)
    got = decode_routing(encode_routing(sent))
    assert np.array_equal(got, sent)
    ids, valid = align_routing(got, 5, [0, 2], 8)
    assert ids.shape == (5, 2, 2)
    assert np.array_equal(ids[:4], sent[:, [0, 2]])
    assert valid.tolist() == [1, 1, 1, 1, 0]
    assert align_routing(got, 5, [1], 300)[0].dtype == np.uint16


def test_refusals() -> None:
    with pytest.raises(PayloadError, match="npy"):
        decode_routing("AAAA")
    with pytest.raises(PayloadError, match="rows"):
        align_routing(rows(4), 3, [0], 8)
    with pytest.raises(PayloadError, match="outside"):
        align_routing(rows(4), 4, [0], 2)
    with pytest.raises(PayloadError, match="layer 3"):
        align_routing(rows(4), 4, [3], 8)
    with pytest.raises(PayloadError, match="twice"):
        align_routing(np.zeros((2, 1, 2), np.uint8), 2, [0], 8)
