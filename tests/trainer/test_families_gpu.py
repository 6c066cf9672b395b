"""Each family on a GPU: fp32 as transformers computes it on the CPU, with recorded experts; a bf16 step near it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.families import TINY

pytestmark = [pytest.mark.runtime, pytest.mark.gpu]
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)


def reference(folder: Path, batch: Any, sparse: bool) -> Any:
    """transformers' log probability of each token, [tokens]."""
    from tests.trainer import families

    model, found = families.load(folder), np.zeros(len(batch.tokens), np.float32)
    routed = torch.from_numpy(batch.routed_experts.astype(np.int64))
    for low, high in zip(batch.sample_offsets[:-1], batch.sample_offsets[1:], strict=True):
        if sparse:
            families.force_routing(model, routed[low:high])
        tokens = torch.from_numpy(batch.tokens[low:high]).long()[None]
        with torch.no_grad():
            scores = model(tokens, use_cache=False).logits[0, :-1].log_softmax(-1)
        found[low + 1 : high] = scores.gather(-1, tokens[0, 1:, None])[:, 0]
    return found


@pytest.mark.parametrize("kind", list(TINY))
def test_as_transformers_and_a_bf16_step_near_it(tmp_path: Path, kind: str) -> None:
    from prlc.runtime.trainer import titan, weights
    from prlc.runtime.trainer.engine import measure, rows_of, train_step
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.optimizer import build_optimizer
    from prlc.schema.trainer import Replay

    from tests.trainer.families import write
    from tests.trainer.samples import make_batch, settings

    write(kind, tmp_path)
    sparse = bool(TINY[kind][2])
    batch = make_batch(1, samples=6, layers=max(1, TINY[kind][2]))
    wanted = reference(tmp_path, batch, sparse)
    device = titan.start_processes("cuda", 120)
    base = replace(settings(tmp_path), model_type=kind, device="cuda", replay=Replay(enabled=sparse, compare="never"))
    differences, losses = {}, {}
    for precision in ("fp32", "bf16"):
        config = replace(base, precision=precision, activation_checkpoint="full")
        model = build_model(config, tmp_path, device)
        weights.load_weights(model, tmp_path)
        batch.advantages = np.arange(len(batch.tokens), dtype=np.float32)  # says which token a label is
        micro = rows_of(model, batch, config.micro_batch_tokens)
        worst, summed, count = 0.0, 0.0, 0
        for rows, found in zip(micro, measure(model, micro, 1.0, sparse), strict=True):
            token = rows.advantages.astype(int)[rows.mask]
            gap = np.abs(found.cpu().numpy()[rows.mask] - wanted[token])
            worst, summed, count = max(worst, float(gap.max())), summed + float(gap.sum()), count + gap.size
        differences[precision] = (worst, summed / count)
        batch.advantages = np.sin(np.arange(len(batch.tokens), dtype=np.float32))
        optimizer = build_optimizer(model.module, config.optimizer)
        numbers = train_step(model, optimizer, config, batch, 1, False)
        assert math.isfinite(numbers["grad_norm"])
        assert numbers["grad_norm"] > 0
        losses[precision] = numbers["loss"]
        del model, optimizer
    print(kind, differences, losses)
    assert differences["fp32"][0] < 1e-4  # another order of sums than the CPU's
    assert differences["bf16"][1] < 0.05  # 8 bits of mantissa
    assert abs(losses["bf16"] - losses["fp32"]) < 0.05
