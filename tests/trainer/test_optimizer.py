"""Schedules, Muon, and the clipped step, which is the same in every layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prlc.schema.trainer import Optimizer

from tests.trainer.step_worker import LIMIT

pytestmark = pytest.mark.runtime
ROOT = Path(__file__).resolve().parents[2]
# ranks, dp_replicate, cp, ep; the last one goes on from the checkpoint of OTHER, too
OTHER, ONE = (2, 1, 1, 2), (1, 1, 1, 1)
LAYOUTS = ((2, 1, 1, 1), OTHER, (2, 2, 1, 1), (2, 1, 2, 1), (2, 1, 2, 2), (4, 2, 1, 2), ONE)


def test_schedules() -> None:
    from prlc.runtime.trainer.optimizer import learning_rate

    def rates(schedule: Any, warmup: int) -> list[float]:
        settings = Optimizer(lr=2.0, warmup_steps=warmup, schedule=schedule)
        return [learning_rate(settings, step, 8) for step in range(1, 9)]

    assert rates("constant", 0) == [2.0] * 8
    assert rates("constant", 4) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert rates("linear", 4) == pytest.approx([0.5, 1.0, 1.5, 2.0, 1.6, 1.2, 0.8, 0.4])
    assert rates("linear", 0) == pytest.approx([2.0 * (1 - step / 8) for step in range(8)])
    cosine = [1 + np.cos(np.pi * share / 5) for share in range(5)]
    assert rates("cosine", 4) == pytest.approx([0.5, 1.0, 1.5, *cosine])


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    import torch
    from prlc.runtime.trainer.muon import orthogonalised

    made = torch.Generator().manual_seed(0)
    for shape in ((40, 24), (24, 40), (5, 24, 40)):
        given = torch.randn(shape, generator=made)
        result = orthogonalised(given)
        values = torch.linalg.svdvals(result)
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.5
        left, _, right = torch.linalg.svd(given, full_matrices=False)
        assert float(((left @ right) * result).sum() / result.norm() / (left @ right).norm()) > 0.95
    stack = torch.randn(3, 8, 20, generator=made)
    for one, whole in zip(stack, orthogonalised(stack), strict=True):
        assert float((orthogonalised(one) - whole).abs().max()) < 2e-2  # bfloat16


def test_muon_is_torchs_on_matrices_and_adamw_elsewhere() -> None:
    import torch
    from prlc.runtime.trainer.muon import Muon

    made = torch.Generator().manual_seed(1)
    start, gradients = torch.randn(40, 24, generator=made), torch.randn(4, 40, 24, generator=made)
    ours, theirs, vector, adam = (torch.nn.Parameter(start.clone()) for _ in range(4))
    common = {"lr": 0.02, "weight_decay": 0.1}
    optimizer = Muon([ours], [vector], betas=(0.9, 0.95), eps=1e-8, **common)
    muon = torch.optim.Muon([theirs], momentum=0.95, adjust_lr_fn="match_rms_adamw", **common)
    adamw = torch.optim.AdamW([adam], betas=(0.9, 0.95), eps=1e-8, **common)
    for gradient in gradients:
        for parameter in (ours, theirs, vector, adam):
            parameter.grad = gradient.clone()
        for one in (optimizer, muon, adamw):
            one.step()
    assert float((vector - adam).abs().max()) == 0
    moved = float((theirs - start).norm())
    assert moved > 0.1
    assert float((ours - theirs).norm()) / moved < 2e-2  # both multiply in bfloat16


def test_muon_takes_hidden_matrices_and_no_offload() -> None:
    import torch
    from prlc.runtime.trainer.muon import is_matrix
    from prlc.runtime.trainer.optimizer import build_optimizer

    two, three = torch.zeros(2, 2), torch.zeros(2, 2, 2)
    assert is_matrix("layers.0.attention.wo.weight", two)
    assert is_matrix("layers.0.moe.routed_experts.inner_experts.w1_EFD", three)
    assert not is_matrix("tok_embeddings.weight", two)
    assert not is_matrix("lm_head.weight", two)
    assert not is_matrix("layers.0.mamba.conv1d.weight", three)
    assert not is_matrix("norm.weight", torch.zeros(2))
    with pytest.raises(ValueError, match="offload"):
        build_optimizer(torch.nn.Linear(2, 2), Optimizer(name="muon", lr=1.0, offload="cpu"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int, int, int], tuple[Any, Any]]:
    from tests.trainer.samples import write_base

    out = tmp_path_factory.mktemp("steps")
    write_base(out / "base")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    found = {}
    for layout in LAYOUTS:
        world, replicate, cp, ep = layout
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
            "--nproc-per-node", str(world), "-m", "tests.trainer.step_worker",
            str(out / "base"), str(out), str(replicate), str(cp), str(ep),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        name = f"step_{world}_{replicate}_{cp}_{ep}"
        with np.load(out / f"{name}.npz") as arrays:
            found[layout] = (dict(arrays), json.loads((out / f"{name}.json").read_text()))
    return found


def gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / max(1e-12, np.abs(theirs).max()))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", ["dapo", "gspo"])
def test_clipping_is_right_with_expert_parallelism(results: Any, layout: tuple[int, int, int, int], loss: str) -> None:
    arrays, numbers = results[layout]
    expected, one = results[ONE]
    gradients = {name: value for name, value in arrays.items() if name.startswith(f"grad/{loss}/")}
    norm = sum(float(np.square(value, dtype=np.float64).sum()) for value in gradients.values()) ** 0.5
    assert norm == pytest.approx(LIMIT, rel=1e-5)
    before = one[f"adamw/{loss}"]["grad_norm"]
    assert before > 2 * LIMIT
    assert numbers[f"adamw/{loss}"]["grad_norm"] == pytest.approx(before, rel=1e-5)
    for name, value in gradients.items():
        assert gap(value, expected[name]) < 1e-4, name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_of_a_step_do_not_depend_on_the_layout(results: Any, layout: tuple[int, int, int, int]) -> None:
    for key, wanted in results[ONE][1].items():
        numbers = results[layout][1][key]
        assert set(numbers) == set(wanted)
        assert 0 < wanted["entropy"] < np.log(64)
        assert wanted["ratio_max"] > wanted["ratio_mean"] > 0
        for name, value in wanted.items():
            assert numbers[name] == pytest.approx(value, rel=1e-4, abs=1e-7), (key, name)


# Share of a step's own length by which two layouts may differ: Newton-Schulz in bfloat16 turns the rounding of
# gradients whose singular values are small into a few percent of an update; lost momentum would be all of it.
DRIFT = {"adamw": 1e-3, "muon": 0.15}


def drift(ours: np.ndarray, theirs: np.ndarray, before: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - before))


@pytest.mark.parametrize("optimizer", sorted(DRIFT))
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_second_step_in_every_layout(results: Any, layout: tuple[int, int, int, int], optimizer: str) -> None:
    arrays, expected = results[layout][0], results[ONE][0]
    names = [name for name in expected if name.startswith(f"{optimizer}/2/")]
    assert names
    for name in names:
        before = expected[name.replace("/2/", "/1/", 1)]
        assert drift(arrays[name], expected[name], before) < DRIFT[optimizer], name


@pytest.mark.parametrize("optimizer", sorted(DRIFT))
def test_goes_on_from_the_checkpoint_of_another_layout(results: Any, optimizer: str) -> None:
    resumed, wanted = results[ONE][0], results[OTHER][0]
    names = [name for name in wanted if name.startswith(f"{optimizer}/2/")]
    assert names
    for name in names:
        after, before = resumed[name.replace("/2/", "/resumed/", 1)], wanted[name.replace("/2/", "/1/", 1)]
        assert drift(after, wanted[name], before) < DRIFT[optimizer], name
