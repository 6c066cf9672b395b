"""The fused head computes what the plain one computes, with the logits of one chunk alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.runtime
ROOT = Path(__file__).resolve().parents[2]
ROWS, WIDTH, HIDDEN, VOCABULARY = 3, 37, 24, 509


def inputs(dtype: Any = None) -> tuple[Any, Any, Any, Any]:
    """hidden, weight, labels and the factor of each token's gradient."""
    import torch

    made = torch.Generator().manual_seed(0)
    dtype = dtype or torch.float32
    hidden = torch.randn(ROWS, WIDTH, HIDDEN, generator=made).to(dtype)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=made).to(dtype)
    labels = torch.randint(VOCABULARY, (ROWS, WIDTH), generator=made)
    return hidden.requires_grad_(), weight.requires_grad_(), labels, torch.randn(ROWS, WIDTH, generator=made)


def plain(hidden: Any, weight: Any, labels: Any, temperature: float, dtype: Any = None) -> tuple[Any, Any]:
    dtype = dtype or hidden.dtype
    table = ((hidden.to(dtype) @ weight.to(dtype).t()) / temperature).log_softmax(-1)
    return table.gather(-1, labels[..., None])[..., 0], -(table.exp() * table).sum(-1)


def gap(ours: Any, theirs: Any) -> float:
    """Largest difference over the largest value."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_equals_the_plain_head(chunk: int, temperature: float) -> None:
    import torch
    from prlc.runtime.trainer.head import fused_scores

    hidden, weight, labels, factors = inputs()
    expected, entropy = plain(hidden, weight, labels, temperature, torch.float64)
    wanted = torch.autograd.grad((expected * factors).sum(), (hidden, weight))
    logprobs, entropies = fused_scores(hidden, weight, labels, temperature, chunk)
    assert not entropies.requires_grad
    assert gap(logprobs, expected) < 1e-6
    assert float((entropies - entropy).abs().max()) < 1e-5
    for ours, theirs in zip(torch.autograd.grad((logprobs * factors).sum(), (hidden, weight)), wanted, strict=True):
        assert gap(ours, theirs) < 1e-6


@pytest.mark.parametrize("kept", [0.0, 0.3])
def test_tokens_without_a_label_cost_nothing(kept: float) -> None:
    import torch
    from prlc.runtime.trainer.head import fused_scores

    hidden, weight, labels, factors = inputs()
    asked = torch.rand(ROWS, WIDTH, generator=torch.Generator().manual_seed(2)) < kept
    expected, entropy = plain(hidden, weight, labels, 1.0)
    wanted = torch.autograd.grad((expected * factors * asked).sum(), (hidden, weight))
    counted = LiveLogits(weight)
    with counted.mode:
        logprobs, entropies = fused_scores(hidden, weight, torch.where(asked, labels, -1), 1.0, 1000)
    assert counted.largest == int(asked.sum()) * VOCABULARY
    assert float((logprobs - torch.where(asked, expected, 0.0)).abs().max()) < 1e-5
    assert float((entropies - torch.where(asked, entropy, 0.0)).abs().max()) < 1e-5
    ours = torch.autograd.grad((logprobs * factors).sum(), (hidden, weight))
    for mine, theirs in zip(ours, wanted, strict=True):  # where nothing is asked they are zeros: FSDP2 waits for them
        assert float((mine - theirs).abs().max()) <= 1e-6 * max(1.0, float(theirs.abs().max()))


def test_bfloat16_weights_are_summed_in_float32() -> None:
    import torch
    from prlc.runtime.trainer.head import fused_scores

    hidden, weight, labels, factors = inputs(torch.bfloat16)
    expected, _ = plain(hidden, weight, labels, 1.0, torch.float32)
    wanted = torch.autograd.grad((expected * factors).sum(), (hidden, weight))
    logprobs, _ = fused_scores(hidden, weight, labels, 1.0, 8)
    assert logprobs.dtype == torch.float32
    assert gap(logprobs, expected) < 1e-6
    for ours, theirs in zip(torch.autograd.grad((logprobs * factors).sum(), (hidden, weight)), wanted, strict=True):
        assert ours.dtype == torch.bfloat16
        assert gap(ours, theirs) < 1e-2


def test_huge_logits_stay_finite() -> None:
    import torch
    from prlc.runtime.trainer.head import fused_scores

    hidden = torch.tensor([[[300.0]]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.999]], requires_grad=True)
    logprobs, entropies = fused_scores(hidden, weight, torch.tensor([[1]]), 1.0, 4)
    logprobs.sum().backward()
    assert float(logprobs) == pytest.approx(-600.5544, abs=1e-3)
    assert float(entropies) == pytest.approx(0.6820, abs=1e-3)
    assert hidden.grad is not None
    assert torch.isfinite(hidden.grad).all()


class LiveLogits:
    """Counts float32 elements alive in tensors of whole vocabulary rows, [T, VOCABULARY], but for the weight's."""

    def __init__(self, weight: Any) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        counter, self.alive, self.most, self.largest = self, {}, 0, 0
        self.ours = weight.untyped_storage()._cdata

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = func(*args, **(kwargs or {}))
                for leaf in tree_leaves(out):
                    if getattr(leaf, "ndim", 0) == 2 and leaf.shape[1] == VOCABULARY and leaf.is_floating_point():
                        counter.add(leaf)
                return out

        self.mode = Mode()

    def add(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata == self.ours:
            return
        if storage._cdata not in self.alive:
            self.alive[storage._cdata] = storage.nbytes() // 4
            weakref.finalize(storage, self.alive.pop, storage._cdata, None)
        self.largest = max(self.largest, tensor.numel())
        self.most = max(self.most, sum(self.alive.values()))


@pytest.mark.parametrize("chunk", [5, 16])
def test_logits_of_one_chunk_are_alive(chunk: int) -> None:
    from prlc.runtime.trainer.head import fused_scores

    hidden, weight, labels, factors = inputs()
    counted = LiveLogits(weight)
    with counted.mode:
        (plain(hidden.flatten(0, 1), weight, labels.flatten(), 1.0)[0] * factors.flatten()).sum().backward()
    assert counted.largest == ROWS * WIDTH * VOCABULARY  # the counter sees what the plain head makes
    assert counted.most >= 2 * ROWS * WIDTH * VOCABULARY
    counted = LiveLogits(weight)
    with counted.mode:
        (fused_scores(hidden, weight, labels, 1.0, chunk)[0] * factors).sum().backward()
    assert counted.largest == chunk * VOCABULARY
    assert counted.most == chunk * VOCABULARY


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.trainer.samples import write_base

    folder = tmp_path_factory.mktemp("head") / "base"
    write_base(folder)
    return folder


@pytest.mark.parametrize(("world", "ep"), [(1, 1), (2, 1), (2, 2)])
def test_whole_model_gradients_and_one_gather(base: Path, tmp_path: Path, world: int, ep: int) -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", str(world), "-m", "tests.trainer.head_worker", str(base), str(tmp_path), str(ep),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for rank in range(world):
        counts = json.loads((tmp_path / f"plain_{rank}.json").read_text())
        assert world == 1 or counts
        with np.load(tmp_path / f"plain_{rank}.npz") as arrays:
            expected = dict(arrays)
        for name in ("chunk_5", "chunk_1000"):
            # a chunk more gathers and reduces no more: the head's weight stays gathered over all chunks
            assert json.loads((tmp_path / f"{name}_{rank}.json").read_text()) == counts
            with np.load(tmp_path / f"{name}_{rank}.npz") as arrays:
                assert set(arrays) == set(expected)
                for key, wanted in expected.items():
                    scale = max(1e-12, np.abs(wanted).max())
                    assert np.abs(arrays[key] - wanted).max() / scale < 1e-6, (name, key)
