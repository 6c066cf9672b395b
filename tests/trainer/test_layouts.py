"""Every layout computes what one process computes, and Hugging Face computes the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.runtime
ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = ((1, "1"), (2, "1"), (2, "2"), (4, "4"))
OTHERS = [(2, 1), (2, 2), (4, 4)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.trainer.samples import write_base

    out = tmp_path_factory.mktemp("layouts")
    write_base(out / "base")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for world, eps in LAYOUTS:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
            "--nproc-per-node", str(world), "-m", "tests.trainer.layout_worker",
            str(out / "base"), str(out), eps,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
    return out


def load(results: Path, world: int, ep: int) -> tuple[dict, dict]:
    with np.load(results / f"layout_{world}_{ep}.npz") as arrays:
        return dict(arrays), json.loads((results / f"layout_{world}_{ep}.json").read_text())


@pytest.mark.parametrize(("world", "ep"), OTHERS)
def test_layout_equals_one_process(results: Path, world: int, ep: int) -> None:
    arrays, numbers = load(results, world, ep)
    reference, expected = load(results, 1, 1)
    for name in ("logprobs_1", "logprobs_0"):
        assert np.abs(arrays[name] - reference[name]).max() < 1e-5
    assert set(arrays) == set(reference)
    for name in (n for n in reference if n.startswith("grad/")):
        scale = max(1e-12, np.abs(reference[name]).max())
        assert np.abs(arrays[name] - reference[name]).max() / scale < 1e-4, name
    for name in ("loss", "mismatch_kl", "mismatch_kl_no_replay", "masked_share"):
        assert numbers[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-7), name
    assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)


def test_replay_changes_routing_and_gates_learn(results: Path) -> None:
    arrays, _ = load(results, 1, 1)
    assert np.abs(arrays["logprobs_1"] - arrays["logprobs_0"]).max() > 1e-3
    gates = [name for name in arrays if name.startswith("grad/") and "router.gate" in name]
    assert len(gates) == 4
    assert all(np.abs(arrays[name]).max() > 0 for name in gates)


@pytest.mark.parametrize(("world", "ep"), [(1, 1), *OTHERS])
def test_published_folder_loads_in_transformers(results: Path, world: int, ep: int) -> None:
    import torch
    from transformers import Qwen3MoeForCausalLM

    _, info = Qwen3MoeForCausalLM.from_pretrained(
        results / f"policy_{world}_{ep}", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (results / f"policy_{world}_{ep}" / "COMPLETE").exists()


def test_logprobs_equal_transformers(results: Path) -> None:
    import torch
    from transformers import Qwen3MoeForCausalLM

    from tests.trainer.samples import make_batch

    model = Qwen3MoeForCausalLM.from_pretrained(results / "base", dtype=torch.float32, attn_implementation="eager")
    batch, ours = make_batch(1), load(results, 1, 1)[0]["logprobs_0"]
    for low, high in zip(batch.sample_offsets[:-1], batch.sample_offsets[1:], strict=True):
        tokens = torch.from_numpy(batch.tokens[low:high]).long()[None]
        with torch.no_grad():
            logprobs = model(tokens).logits[:, :-1].log_softmax(-1)
        theirs = logprobs.gather(-1, tokens[:, 1:, None])[0, :, 0].numpy()
        assert np.abs(ours[low + 1 : high] - theirs).max() < 1e-5
