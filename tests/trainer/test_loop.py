"""A trainer that is killed and run again ends at the weights of one that was not."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prlc.runtime.trainer.loop import ReplayGate, check_gate
from prlc.runtime.transport.batches import write_batch
from prlc.schema import codec

from tests.trainer.samples import make_batch, settings, write_base

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
    good = {"mismatch_kl": 1e-4, "mismatch_kl_no_replay": 2e-4, "replay_excess": -1e-4, "replay_noise": 1e-5}
    check_gate(good)
    bad = {"mismatch_kl": 3e-2, "mismatch_kl_no_replay": 2e-4, "replay_excess": 2.98e-2, "replay_noise": 1e-3}
    with pytest.raises(ReplayGate, match="must not be worse"):
        check_gate(bad)
