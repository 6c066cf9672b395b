"""The trainer's life: load or resume, then for each batch train, publish, checkpoint, until max_steps."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

import numpy as np
import torch
import torch.distributed as dist
from prlc.runtime.ops.events import Events, Metrics
from prlc.runtime.ops.files import complete_numbers, write_atomic
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.trainer import checkpoint, titan, weights
from prlc.runtime.trainer.engine import train_step
from prlc.runtime.trainer.gate import ReplayGate, check_gate, judges
from prlc.runtime.trainer.model import build_model
from prlc.runtime.trainer.optimizer import build_optimizer
from prlc.runtime.transport.batches import Batch, read_batch, wait_for_batch
from prlc.runtime.transport.policies import retire_policies
from prlc.schema.trainer import TrainerConfig

FINISHED, NOT_FINISHED = 0, 75


def batch_numbers(batch: Batch, step: int) -> dict[str, float]:
    """What can be said of a batch without a model: reward, tokens, lag of samples in policy versions."""
    lags = []
    for low, high in zip(batch.sample_offsets[:-1], batch.sample_offsets[1:], strict=True):
        made = batch.versions[low:high]
        made = made[made >= 0]
        if len(made):
            lags.append(step - 1 - int(made.min()))
    return {
        "reward": float(np.mean(batch.rewards)),
        "samples": batch.samples,
        "tokens": len(batch.tokens),
        "lag_mean": float(np.mean(lags)) if lags else 0.0,
        "lag_max": float(max(lags, default=0)),
    }


class _Stop:
    """TERM or INT was seen; the step in progress is finished first."""

    def __init__(self) -> None:
        self.seen = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True

    def anywhere(self, device: torch.device) -> bool:
        """True on all ranks when any rank saw it."""
        flag = torch.tensor([int(self.seen)], device=device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())


def _wait(folder: Path, settings: TrainerConfig, stop: _Stop) -> bool:
    """Rank 0 waits for the batch and tells the others. Raises TimeoutError on all ranks."""
    answer: list[object] = [None]
    if dist.get_rank() == 0:
        try:
            answer = [wait_for_batch(folder, settings.batch_deadline, lambda: stop.seen)]
        except TimeoutError as error:
            answer = [str(error)]
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], str):
        raise TimeoutError(answer[0])
    return bool(answer[0])


def _decide(numbers: dict[str, float], step: int, events: Events | None) -> None:
    """Judge the replay gate and say so in the events. Raises ReplayGate, on all ranks."""
    failure = None
    try:
        check_gate(numbers)
    except ReplayGate as error:
        failure = error
    if events:
        events.emit(
            "replay_gate",
            step=step,
            passed=failure is None,
            fresh_tokens=int(numbers["fresh_tokens"]),
            mismatch_kl=numbers["mismatch_kl_fresh"],
            mismatch_kl_no_replay=numbers["mismatch_kl_no_replay_fresh"],
        )
    if failure:
        raise failure


def run(settings: TrainerConfig, paths: RunPaths) -> int:
    """Train to max_steps: FINISHED, or NOT_FINISHED after a signal (a checkpoint is there then)."""
    stop = _Stop()
    device = titan.start_processes(settings.device, settings.batch_deadline + 600)
    lead = dist.get_rank() == 0
    base = Path(settings.model)
    base = base if base.is_absolute() else paths.root / base
    model = build_model(settings, base, device)
    optimizer = build_optimizer(model.module, settings.optimizer)
    state = checkpoint.load_newest(paths.checkpoints, model.module, optimizer)
    step = int(state["step"]) if state else 0
    if state is None:
        weights.load_weights(model, base)
    events = Events(paths.root, "trainer", 0) if lead else None
    metrics = Metrics(paths.root, "trainer", 0) if lead else None
    if events:
        events.emit("trainer_started", step=step, world=dist.get_world_size(), resumed=state is not None)
    if lead:
        write_atomic_ready(paths)
    if state is not None:  # a life that died between checkpoint and publishing left a gap
        weights.publish(model, base, paths.policy(step), settings.publish_dtype)
    saved = step if state else -1
    replay, decided = settings.replay, None  # the step whose batch the replay gate was decided on, in this life
    while step < settings.max_steps:
        waited = time.monotonic()
        ready = _wait(paths.batch(step + 1), settings, stop)
        if stop.anywhere(device) or not ready:
            break
        step += 1
        started = time.monotonic()
        batch = read_batch(paths.batch(step))
        gate = replay.enabled and replay.compare != "never" and decided is None and judges(batch, step)
        compare = gate or (replay.enabled and replay.compare == "every_step")
        numbers = train_step(model, optimizer, settings, batch, step, compare)
        if gate:
            decided = step
            _decide(numbers, step, events)
        trained = time.monotonic()
        weights.publish(model, base, paths.policy(step), settings.publish_dtype)
        due = step % settings.checkpoint.every_steps == 0 or step == settings.max_steps
        if due:
            checkpoint.save_checkpoint(paths.checkpoint(step), model.module, optimizer, {"step": step})
            saved = step
        if lead and metrics and events:
            checkpoint.retire_checkpoints(paths.checkpoints, settings.checkpoint.keep)
            protected = set(complete_numbers(paths.checkpoints))
            retire_policies(paths.policies, settings.keep_policies, protected)
            seconds = trained - started
            metrics.log(
                step,
                **numbers,
                **batch_numbers(batch, step),
                step_seconds=seconds,
                wait_seconds=started - waited,
                publish_seconds=time.monotonic() - trained,
                tokens_per_s=len(batch.tokens) / seconds,
            )
            events.emit("policy_published", version=step)
            print(line(step, settings.max_steps, numbers, seconds), flush=True)
        if stop.anywhere(device):
            break
    finished = step >= settings.max_steps
    if not finished and saved != step and step > 0:
        checkpoint.save_checkpoint(paths.checkpoint(step), model.module, optimizer, {"step": step})
    if lead and events:
        events.emit("trainer_ended", step=step, finished=finished, replay_gate=decided)
        if finished:
            paths.done("trainer").parent.mkdir(parents=True, exist_ok=True)
            write_atomic(paths.done("trainer"), f"{step}\n")
    dist.barrier()
    dist.destroy_process_group()
    return FINISHED if finished else NOT_FINISHED


def line(step: int, steps: int, numbers: dict[str, float], seconds: float) -> str:
    """A trained step for a log: "trained 7/80  mismatch KL 1.2e-04 (4.3e-04 without replay)  grad norm 0.61  0.4 s"."""
    natural = numbers.get("mismatch_kl_no_replay")
    beside = "" if natural is None else f" ({natural:.1e} without replay)"
    return (
        f"trained {step}/{steps}  mismatch KL {numbers['mismatch_kl']:.1e}{beside}"
        f"  grad norm {numbers['grad_norm']:.2f}  {seconds:.1f} s"
    )


def write_atomic_ready(paths: RunPaths) -> None:
    """Say that the trainer is up, in this attempt."""
    path = paths.ready(int(os.environ.get("PRLC_ATTEMPT", "1")), "trainer", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "")
