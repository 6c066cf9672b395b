"""Losses against values worked out by hand."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.runtime


def test_masked_is_drops_tokens_outside_the_band() -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss
    from prlc.schema.trainer import Loss

    ratios = torch.tensor([1.0, 2.0, 6.0, 0.1, 3.0])
    trainer = ratios.log().requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 1.0, 1.0, 5.0])
    mask = torch.tensor([True, True, True, True, False])
    result = policy_loss(Loss(name="masked_is"), trainer, torch.zeros(5), advantages, mask)
    assert float(result.loss) == pytest.approx(-1.0 + 2.0)
    assert int(result.masked) == 2
    result.loss.backward()
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([-1.0, 2.0, 0.0, 0.0, 0.0])


def test_ppo_clip() -> None:
    import torch
    from prlc.runtime.trainer.loss import policy_loss
    from prlc.schema.trainer import Loss

    trainer = torch.tensor([1.0, 2.0, 0.5, 0.5]).log().requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0, 1.0])
    result = policy_loss(Loss(name="ppo_clip"), trainer, torch.zeros(4), advantages, torch.ones(4, dtype=torch.bool))
    assert float(result.loss) == pytest.approx(-1.0 - 1.28 + 0.8 - 0.5)
    assert int(result.masked) == 2
    result.loss.backward()
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([-1.0, 0.0, 0.0, -0.5])


def test_k3() -> None:
    import torch
    from prlc.runtime.trainer.loss import k3

    assert float(k3(torch.tensor(0.5), torch.tensor(0.0))) == pytest.approx(math.exp(0.5) - 1.5)
