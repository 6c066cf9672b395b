"""The replay gate: before a life trains on, its replayed routing must prove that it belongs to its batches."""

from __future__ import annotations

from prlc.runtime.transport.batches import Batch

FRESH_TOKENS = 256  # enough for a mean and its standard error, and a small part of any real batch


class ReplayGate(RuntimeError):
    """Replay brings the trainer no closer to the engine: the recorded routing is not the batch's."""


def judges(batch: Batch, step: int) -> bool:
    """True where batch `step` can decide: 256 trained tokens written by the very weights that it trains, or all.

    Tokens of older weights, as after a resume or with any lag, differ by more than their routing.
    """
    trained = batch.loss_mask != 0
    fresh = int((trained & (batch.versions == step - 1)).sum())
    return 0 < fresh >= min(FRESH_TOKENS, int(trained.sum()))


def check_gate(numbers: dict[str, float]) -> None:
    """Raise ReplayGate when over fresh tokens the mismatch with replay exceeds that without by more than its noise.

    Both below 1e-9 passes: then engine and trainer agree either way.
    """
    with_replay, without = numbers["mismatch_kl_fresh"], numbers["mismatch_kl_no_replay_fresh"]
    if max(with_replay, without) < 1e-9:
        return
    if numbers["replay_excess"] > 2 * numbers["replay_noise"] + 1e-9:
        raise ReplayGate(
            f"mismatch KL with router replay {with_replay:.3e}, without {without:.3e}: replay must not be "
            "worse. The recorded experts do not belong to these tokens, or the weights differ."
        )
