"""Each family computes what transformers computes, keeps its checkpoint's names, and does so in every layout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.families import LAYOUTS, TINY, label, layouts_of

pytestmark = pytest.mark.runtime
ROOT = Path(__file__).resolve().parents[2]
KINDS = list(TINY)
SPARSE = [kind for kind in KINDS if TINY[kind][2]]
OTHERS = [(kind, label(layout)) for kind in KINDS for layout in layouts_of(kind)[1:]]
ALONE = label(LAYOUTS[0])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    from tests.trainer.families import write, write_blocks

    out = tmp_path_factory.mktemp("families")
    for kind in KINDS:
        write(kind, out / kind)
    torch.save(write_blocks(out / "glm4_moe", out / "blocks"), out / "meant.pt")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.trainer.families_worker", str(out), ",".join(KINDS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return out


def load(results: Path, kind: str, layout: str) -> dict[str, Any]:
    with np.load(results / f"{kind}_{layout}.npz") as arrays:
        return dict(arrays)


def read(folder: Path) -> dict[str, Any]:
    """All tensors of a checkpoint."""
    from safetensors.torch import load_file

    return {k: v for path in sorted(folder.glob("*.safetensors")) for k, v in load_file(path).items()}


def furthest(a: Any, b: Any) -> float:
    """Largest difference, relative to the largest value of b."""
    return float(np.abs(a - b).max() / max(1e-12, np.abs(b).max()))


@pytest.mark.parametrize("replay", ["natural", "replay"])
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_computes_the_same(results: Path, kind: str, replay: str) -> None:
    """Log probabilities and every gradient, with the routers' own choice and with recorded experts."""
    import torch
    from safetensors.torch import load_file

    from tests.trainer import families
    from tests.trainer.samples import make_batch

    if replay == "replay" and kind not in SPARSE:
        pytest.skip("no experts")
    model, batch = families.load(results / kind), make_batch(1, samples=6, layers=max(1, TINY[kind][2]))
    routed = torch.from_numpy(batch.routed_experts.astype(np.int64))
    ours, total = load(results, kind, ALONE), torch.zeros(())
    for low, high in zip(batch.sample_offsets[:-1], batch.sample_offsets[1:], strict=True):
        if replay == "replay":
            families.force_routing(model, routed[low:high])
        tokens = torch.from_numpy(batch.tokens[low:high]).long()[None]
        logprobs = model(tokens, use_cache=False).logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0]
        mask = torch.from_numpy(batch.loss_mask[low + 1 : high] != 0)
        theirs = logprobs.detach().numpy()
        found = ours[f"logprobs/{replay}"][low + 1 : high]
        assert np.abs((found - theirs)[mask.numpy()]).max() < 1e-5
        factors = torch.from_numpy(np.sin(np.arange(low + 1, high, dtype=np.float32)))
        total = total + (logprobs * factors)[mask].sum()
    total.backward()
    with torch.no_grad():  # saving renames and splits gradients as it does weights
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    model.save_pretrained(results / f"{kind}_{replay}_gradients")
    gradients = load_file(results / f"{kind}_{replay}_gradients" / "model.safetensors")
    named = {name.split("/", 1)[1]: value for name, value in ours.items() if name.startswith(f"hf_{replay}/")}
    frozen = {name for name in gradients if name.endswith("e_score_correction_bias") or ".indexer." in name}
    assert set(gradients) - frozen == set(named)
    for name, value in named.items():
        assert furthest(value, gradients[name].numpy()) < 2e-5, name


@pytest.mark.parametrize(("kind", "layout"), [(kind, ALONE) for kind in KINDS] + OTHERS)
def test_checkpoint_comes_back_as_it_was(results: Path, kind: str, layout: str) -> None:
    """Names, shapes, dtypes and values."""
    import torch

    before, after = read(results / kind), read(results / f"{kind}_{layout}")
    assert set(before) == set(after)
    for name, value in before.items():
        assert after[name].dtype == value.dtype, name
        assert torch.equal(after[name], value), name


@pytest.mark.parametrize("layout", [ALONE, "1_2_1_2"])
def test_fp8_blocks_are_read(results: Path, layout: str) -> None:
    import torch

    meant, found = torch.load(results / "meant.pt"), read(results / f"blocks_{layout}")
    assert set(found) == set(meant)
    assert sum(name.endswith("_proj.weight") for name in meant) > 50
    for name, value in meant.items():
        assert torch.equal(found[name], value), name
    assert "quantization_config" not in (results / f"blocks_{layout}" / "config.json").read_text()


@pytest.mark.parametrize(("kind", "layout"), OTHERS)
def test_layout_equals_one_process(results: Path, kind: str, layout: str) -> None:
    found, reference = load(results, kind, layout), load(results, kind, ALONE)
    replay = "replay" if kind in SPARSE else "natural"
    assert np.abs(found[f"logprobs/{replay}"] - reference[f"logprobs/{replay}"]).max() < 1e-5
    gradients = {name for name in reference if name.startswith(f"grad_{replay}/")}
    assert len(gradients) > 10
    for name in gradients:
        assert furthest(found[name], reference[name]) < 1e-5, name


@pytest.mark.parametrize(("kind", "layout"), [(kind, ALONE) for kind in SPARSE] + [o for o in OTHERS if o[0] in SPARSE])
def test_replay_takes_the_recorded_experts(results: Path, kind: str, layout: str) -> None:
    """In all layers with experts, under full recomputation too; gates learn, and it makes a difference."""
    found, reference = load(results, kind, layout), load(results, kind, ALONE)
    assert found["wrong/replay"].item() == 0
    assert np.abs(found["logprobs/replay"] - reference["logprobs/natural"]).max() > 1e-3
    gates = [name for name in found if name.startswith("grad_replay/") and "router.gate.weight" in name]
    assert len(gates) == TINY[kind][2]
    assert all(np.abs(found[name]).max() > 1e-6 for name in gates)
