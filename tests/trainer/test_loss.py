"""Losses against values worked out by hand and against plain numpy, gradients included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prlc.schema.trainer import RATIO_BOUNDS, Loss

pytestmark = pytest.mark.runtime


def loss(name: str, **changed: Any) -> Loss:
    low, high = RATIO_BOUNDS[name]
    return replace(Loss(name=name, ratio_low=low, ratio_high=high), **changed)  # type: ignore[arg-type]


def tokens(
    trainer: Any, engine: Any, advantages: Any, mask: Any = None, fresh: Any = None, sequences: Any = None
) -> Any:
    import torch
    from prlc.runtime.trainer.loss import Tokens

    whole = torch.ones(trainer.shape, dtype=torch.bool)
    return Tokens(
        trainer,
        engine,
        advantages,
        whole if mask is None else mask,
        whole if fresh is None else fresh,
        torch.zeros(trainer.shape, dtype=torch.long) if sequences is None else sequences,
    )


def test_masked_is_drops_tokens_outside_the_band() -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss

    trainer = torch.tensor([1.0, 2.0, 6.0, 0.1, 3.0]).log().requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 1.0, 1.0, 5.0])
    mask = torch.tensor([True, True, True, True, False])
    result = policy_loss(loss("masked_is"), tokens(trainer, torch.zeros(5), advantages, mask))
    assert float(result.loss.detach()) == pytest.approx(-1.0 + 2.0)
    assert int(result.masked) == 2
    result.loss.backward()
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([-1.0, 2.0, 0.0, 0.0, 0.0])


def test_clip_higher() -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss

    for name, most in (("ppo_clip", 1.2), ("dapo", 1.28)):
        trainer = torch.tensor([1.0, 2.0, 0.5, 0.5]).log().requires_grad_()
        advantages = torch.tensor([1.0, 1.0, -1.0, 1.0])
        result = policy_loss(loss(name), tokens(trainer, torch.zeros(4), advantages))
        assert float(result.loss.detach()) == pytest.approx(-1.0 - most + 0.8 - 0.5)
        assert int(result.masked) == 2
        result.loss.backward()
        assert trainer.grad is not None
        assert trainer.grad.tolist() == pytest.approx([-1.0, 0.0, 0.0, -0.5])


def random_tokens() -> dict[str, np.ndarray]:
    """Three rows of samples laid end to end, some tokens untrained, some stale; log ratios up to about 4."""
    rng = np.random.default_rng(7)
    shape = (3, 24)
    lengths = ((10, 14), (24,), (5, 9, 10))
    sequences = np.stack([np.repeat(np.arange(len(row)), row) + 3 * r for r, row in enumerate(lengths)])
    engine = -np.abs(rng.normal(2, 1, shape))
    return {
        "trainer": engine + rng.normal(0, 1.5, shape),
        "engine": engine,
        "advantages": rng.normal(size=shape),
        "mask": rng.random(shape) < 0.7,
        "fresh": rng.random(shape) < 0.6,
        "sequences": sequences,
    }


def by_numpy(settings: Loss, given: dict[str, np.ndarray]) -> tuple[float, np.ndarray]:
    """(summed loss, its gradient for each trainer log probability), by loops over samples and tokens."""
    value, gradient = 0.0, np.zeros(given["trainer"].shape)
    low, high = settings.ratio_low, settings.ratio_high
    for sample in np.unique(given["sequences"]):
        places = list(zip(*np.nonzero((given["sequences"] == sample) & given["mask"]), strict=True))
        if not places:
            continue
        logs = [given["trainer"][at] - given["engine"][at] for at in places]
        for at, log in zip(places, logs, strict=True):
            advantage, ratio = given["advantages"][at], math.exp(log)
            share = 1 / len(places) if settings.name == "gspo" else 1.0
            if settings.name == "gspo":
                ratio = math.exp(sum(logs) / len(logs))
            if settings.stale_cap is not None and not given["fresh"][at]:
                term = slope = -min(ratio, settings.stale_cap) * advantage
            elif settings.name in ("masked_is", "icepop"):
                term = slope = -ratio * advantage if low <= ratio <= high else 0.0
            elif settings.name == "cispo":
                slope = -min(max(ratio, low), high) * advantage
                term = slope * given["trainer"][at]
            else:
                clipped = min(max(ratio, low), high)
                term = -min(ratio * advantage, clipped * advantage)
                slope = -ratio * advantage if ratio * advantage <= clipped * advantage else 0.0
            term += settings.kl_weight * (math.exp(log) - 1 - log)
            slope += settings.kl_weight * (math.exp(log) - 1)
            value += share * term
            gradient[at] = share * slope
    return value, gradient


@pytest.mark.parametrize("name", sorted(RATIO_BOUNDS))
@pytest.mark.parametrize("changed", [{}, {"kl_weight": 0.3}, {"stale_cap": 1.5}, {"stale_cap": 1.5, "kl_weight": 0.1}])
def test_equals_numpy(name: str, changed: dict[str, float]) -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss

    settings, given = loss(name, **changed), random_tokens()
    made = {key: torch.from_numpy(value) for key, value in given.items()}
    trainer = made["trainer"].requires_grad_()
    if name == "gspo" and "stale_cap" in changed:
        with pytest.raises(ValueError, match="whole samples"):
            policy_loss(settings, tokens(**made))
        return
    result = policy_loss(settings, tokens(**made))
    result.loss.backward()
    value, gradient = by_numpy(settings, given)
    assert float(result.loss.detach()) == pytest.approx(value, rel=1e-12)
    assert trainer.grad is not None
    assert np.abs(trainer.grad.numpy() - gradient).max() < 1e-12
    left_out = int(((by_numpy(replace(settings, kl_weight=0.0), given)[1] == 0) & given["mask"]).sum())
    assert int(result.masked) == left_out
    assert left_out > 0 or name == "cispo"


def test_gspo_is_the_sequence_objective_where_advantages_are_equal() -> None:
    """Equation 5 of arXiv 2507.18071 written down as it stands, differentiated by autograd."""
    import torch
    from prlc.runtime.trainer.loss import policy_loss

    given = random_tokens()
    given["advantages"] = np.array([1.0, -2.0, 0.5, 1.5, 0.7, -0.3, -1.0, 2.0, 0.9])[given["sequences"]]
    made = {key: torch.from_numpy(value) for key, value in given.items()}
    trainer = made["trainer"].requires_grad_()
    settings = loss("gspo", ratio_low=0.9, ratio_high=1.1)
    (ours,) = torch.autograd.grad(policy_loss(settings, tokens(**made)).loss, trainer)
    objective = torch.zeros((), dtype=torch.float64)
    for sample in np.unique(given["sequences"]):
        here = (made["sequences"] == sample) & made["mask"]
        level = (trainer - made["engine"])[here].mean().exp()
        advantage = made["advantages"][here][0]
        objective = objective + torch.minimum(level * advantage, level.clamp(0.9, 1.1) * advantage)
    (theirs,) = torch.autograd.grad(-objective, trainer)
    assert float((ours - theirs).abs().max()) < 1e-12
    assert float(theirs.abs().max()) > 0.01


def test_means_are_over_tokens_or_over_samples() -> None:
    from prlc.runtime.trainer.engine import denominator

    from tests.trainer.samples import make_batch

    batch = make_batch(1)
    low, high = batch.sample_offsets[2:4]
    batch.loss_mask[low:high] = 0
    assert denominator(batch, "gspo") == batch.samples - 1
    for name in set(RATIO_BOUNDS) - {"gspo"}:
        assert denominator(batch, name) == batch.loss_mask.sum()


def test_huge_log_ratios_stay_finite() -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss

    for name in RATIO_BOUNDS:
        trainer = torch.tensor([-200.0, 0.0]).requires_grad_()
        result = policy_loss(loss(name, kl_weight=0.1), tokens(trainer, torch.tensor([0.0, -200.0]), torch.ones(2)))
        result.loss.backward()
        assert torch.isfinite(result.loss.detach())
        assert trainer.grad is not None
        assert torch.isfinite(trainer.grad).all()


def test_k3() -> None:
    import torch
    from prlc.runtime.trainer.loss import k3

    assert float(k3(torch.tensor(0.5), torch.tensor(0.0))) == pytest.approx(math.exp(0.5) - 1.5)
