"""A trainer that is killed and run again ends at the weights of one that was not."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prlc.runtime.trainer.gate import FRESH_TOKENS, ReplayGate, check_gate, judges
from prlc.runtime.transport.batches import Batch, write_batch
from prlc.schema import codec

from tests.trainer.samples import TOP_K, make_batch, settings, write_base

pytestmark = pytest.mark.runtime


def start(run: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PRLC_RUN_DIR": str(run), "PRLC_ATTEMPT": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "prlc.runtime.trainer", "--config", str(run / "trainer.yaml")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def prepare(run: Path, base: Path, batches: int) -> None:
    run.mkdir()
    config = settings(base, steps=3)
    config = dataclasses.replace(config, replay=dataclasses.replace(config.replay, compare="never"))
    (run / "trainer.yaml").write_text(codec.dump(config))
    for step in range(1, batches + 1):
        write_batch(run / "batches" / f"step_{step:08d}", make_batch(step))


def until(path: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.05)


def test_stop_kill_and_resume_end_at_the_same_weights(tmp_path: Path) -> None:
    base = tmp_path / "base"
    write_base(base)
    prepare(tmp_path / "whole", base, 3)
    whole = start(tmp_path / "whole")
    assert whole.wait(timeout=120) == 0, whole.communicate()[1][-3000:]

    broken = tmp_path / "broken"
    prepare(broken, base, 1)
    first = start(broken)
    until(broken / "checkpoints" / "step_00000001" / "COMPLETE", first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=120) == 75
    assert not (broken / "done" / "trainer").exists()
    write_batch(broken / "batches" / "step_00000002", make_batch(2))
    second = start(broken)
    until(broken / "policy" / "step_00000002" / "COMPLETE", second)
    second.kill()
    second.wait(timeout=60)
    write_batch(broken / "batches" / "step_00000003", make_batch(3))
    third = start(broken)
    assert third.wait(timeout=120) == 0, third.communicate()[1][-3000:]
    assert (broken / "done" / "trainer").exists()
    name = Path("policy") / "step_00000003" / "model.safetensors"
    assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert (broken / name).read_bytes() != (base / "model.safetensors").read_bytes()


def test_gate() -> None:
    good = {"mismatch_kl_fresh": 1e-4, "mismatch_kl_no_replay_fresh": 2e-4}
    check_gate({**good, "replay_excess": -1e-4, "replay_noise": 1e-5})
    bad = {"mismatch_kl_fresh": 3e-2, "mismatch_kl_no_replay_fresh": 2e-4}
    check_gate({**bad, "replay_excess": 2.98e-2, "replay_noise": 2e-2})
    with pytest.raises(ReplayGate, match="must not be worse"):
        check_gate({**bad, "replay_excess": 2.98e-2, "replay_noise": 1e-3})


def stale(batch: Batch, fresh: int) -> Batch:
    """`batch` with all but its first `fresh` trained tokens written by the weights before."""
    trained = np.flatnonzero(batch.loss_mask)
    batch.versions[trained[fresh:]] -= 1
    return batch


def test_which_batch_judges() -> None:
    trained = int(make_batch(3).loss_mask.sum())
    assert trained < FRESH_TOKENS  # a small batch judges when it is fresh as a whole
    assert judges(make_batch(3), 3)
    assert not judges(stale(make_batch(3), trained - 1), 3)
    assert not judges(stale(make_batch(3), 0), 3)
    assert judges(stale(make_batch(3, samples=40), FRESH_TOKENS), 3)
    assert not judges(stale(make_batch(3, samples=40), FRESH_TOKENS - 1), 3)


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events" / "trainer-0.jsonl").read_text().splitlines()]


def true_routing(batch: Batch, base: Path) -> Batch:
    """`batch` as an engine of the base weights would have written it: its log probabilities and its experts."""
    import torch
    from transformers import Qwen3MoeForCausalLM

    model = Qwen3MoeForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    assert batch.routed_experts is not None
    for low, high in itertools.pairwise(batch.sample_offsets):
        tokens = torch.from_numpy(batch.tokens[low:high]).long()[None]
        with torch.no_grad():
            out = model(tokens, output_router_logits=True)
        table = out.logits[0, :-1].log_softmax(-1)
        logprobs = table.gather(-1, tokens[0, 1:, None])[:, 0].numpy()
        batch.logprobs[low + 1 : high] = np.where(batch.loss_mask[low + 1 : high], logprobs, 0)
        rows = torch.stack([layer.topk(TOP_K, -1).indices for layer in out.router_logits], 1)
        batch.routed_experts[low:high] = rows.numpy()
    return batch


@pytest.mark.parametrize("right", [True, False])
def test_gate_waits_for_fresh_tokens_and_stops_a_run(tmp_path: Path, right: bool) -> None:
    """The first batch is stale and cannot judge; the second can. lr 0 keeps the base weights for both."""
    base, run = tmp_path / "base", tmp_path / "run"
    write_base(base)
    run.mkdir()
    config = settings(base, steps=3)
    config = dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, lr=0.0),
        replay=dataclasses.replace(config.replay, compare="first_batch"),
    )
    (run / "trainer.yaml").write_text(codec.dump(config))
    for step in (1, 2, 3):
        batch = true_routing(make_batch(step), base)
        if step == 1:
            batch = stale(batch, 5)
        elif not right and batch.routed_experts is not None and batch.routed_valid is not None:
            known = batch.routed_valid == 1
            batch.routed_experts[known] = batch.routed_experts[known][::-1]
        write_batch(run / "batches" / f"step_{step:08d}", batch)
    process = start(run)
    code = process.wait(timeout=120)
    assert process.stderr is not None
    text = process.stderr.read().decode()
    (gate,) = [event for event in events(run) if event["event"] == "replay_gate"]
    assert (gate["step"], gate["passed"]) == (2, right), text[-3000:]
    assert gate["fresh_tokens"] == int(make_batch(2).loss_mask.sum())
    lines = [json.loads(line) for line in (run / "metrics" / "trainer-0.jsonl").read_text().splitlines()]
    assert ["mismatch_kl_no_replay" in line for line in lines] == ([False, True, False] if right else [False])
    if right:
        assert code == 0, text[-3000:]
        assert events(run)[-1]["replay_gate"] == 2
    else:
        assert code == 1
        assert "ReplayGate" in text
        assert not (run / "policy" / "step_00000002").exists()


def test_a_step_is_one_line_of_the_log() -> None:
    from prlc.runtime.trainer.loop import line

    numbers = {"mismatch_kl": 1.23e-4, "grad_norm": 0.614}
    assert line(7, 80, numbers, 0.44) == "trained 7/80  mismatch KL 1.2e-04  grad norm 0.61  0.4 s"
    both = line(7, 80, {**numbers, "mismatch_kl_no_replay": 4.3e-4}, 0.44)
    assert both == "trained 7/80  mismatch KL 1.2e-04 (4.3e-04 without replay)  grad norm 0.61  0.4 s"
