"""Packing: every sample once, equal shapes on all ranks, labels and routing in step with tokens."""

from __future__ import annotations

import numpy as np
import pytest
from prlc.runtime.trainer.packing import PackingError, fill_rows, plan_rows, trained_only

from tests.trainer.samples import make_batch


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_plan_places_every_sample_once_and_evenly(ranks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [int(n) for n in rng.integers(1, 60, int(rng.integers(1, 50)))]
    plan = plan_rows(lengths, ranks, 128)
    assert plan == plan_rows(lengths, ranks, 128)
    flat = [s for rank in plan.rows for micro in rank for row in micro for s in row]
    assert sorted(flat) == list(range(len(lengths)))
    assert len({tuple(len(micro) for micro in rank) for rank in plan.rows}) == 1
    for rank in plan.rows:
        for micro in rank:
            assert len(micro) * plan.width <= 128
            assert all(sum(lengths[s] for s in row) <= plan.width for row in micro)
    loads = [sum(lengths[s] for micro in rank for row in micro for s in row) for rank in plan.rows]
    assert max(loads) - min(loads) <= plan.width * 2


def test_too_long_a_sample_is_refused() -> None:
    with pytest.raises(PackingError, match="200 tokens"):
        plan_rows([3, 200], 1, 128)


def test_rows_hold_next_tokens_and_routing() -> None:
    batch = make_batch(5)
    plan = plan_rows(batch.lengths(), 1, 128)
    trained = 0
    for micro in plan.rows[0]:
        rows = fill_rows(batch, micro, plan.width)
        trained += int(rows.mask.sum())
        for r, samples in enumerate(micro):
            at = 0
            for sample in samples:
                low, high = batch.sample_offsets[sample : sample + 2]
                size = high - low
                assert (rows.labels[r, at : at + size - 1] == batch.tokens[low + 1 : high]).all()
                assert not rows.mask[r, at + size - 1]
                assert rows.positions[r, at : at + size].tolist() == list(range(size))
                assert rows.routed is not None
                assert batch.routed_experts is not None
                assert (rows.routed[r, at : at + size - 1] == batch.routed_experts[low : high - 1]).all()
                assert (rows.routed[r, at + size - 1] == -1).all()
                at += size
            assert (rows.documents[r, at:] == -1).all()
    assert trained == int(batch.loss_mask.sum())


def test_doubled_expert_and_trained_first_token_are_refused() -> None:
    batch = make_batch(1)
    assert batch.routed_experts is not None
    batch.routed_experts[3, 0, :] = 7
    with pytest.raises(PackingError, match="twice"):
        fill_rows(batch, [[0]], 64)
    batch = make_batch(1)
    batch.loss_mask[0] = 1
    with pytest.raises(PackingError, match="first token"):
        fill_rows(batch, [[0]], 64)


def test_sequences_number_samples_and_untrained_labels_are_left_out() -> None:
    batch = make_batch(5)
    plan = plan_rows(batch.lengths(), 1, 128)
    for micro in plan.rows[0]:
        rows = fill_rows(batch, micro, plan.width)
        found = {}
        for r, samples in enumerate(micro):
            at = 0
            for sample in samples:
                size = int(batch.sample_offsets[sample + 1] - batch.sample_offsets[sample])
                (found[sample],) = set(rows.sequences[r, at : at + size].tolist())
                at += size
        assert len(set(found.values())) == len(found)
        assert min(found.values(), default=0) >= 0
        labels = trained_only(rows).labels
        assert (labels[rows.mask] == rows.labels[rows.mask]).all()
        assert (labels[~rows.mask] == -1).all()


def test_bytes_of_a_packed_token_are_those_of_the_ledger() -> None:
    from prlc.compiler.ledger.nodes import PACKED_EXPERT, PACKED_ROW

    batch = make_batch(1)
    (rows,) = [fill_rows(batch, [[0, 1]], sum(batch.lengths()[:2]))]
    arrays = [value for name, value in vars(rows).items() if name != "routed"]
    assert sum(array.nbytes for array in arrays) == PACKED_ROW * rows.tokens.size
    assert rows.routed is not None
    assert rows.routed.itemsize == PACKED_EXPERT
