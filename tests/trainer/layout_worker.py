"""Run by torchrun: one step of a layout with and without replay; rank 0 writes what the test compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)


def main(base: Path, out: Path, eps: list[int]) -> None:
    import os

    import torch.distributed as dist

    os.environ["PRLC_TRAINER_DEVICE"] = "cpu"
    from prlc.runtime.trainer import engine, titan, weights
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.optimizer import build_optimizer
    from prlc.runtime.trainer.packing import plan_rows

    from tests.trainer.samples import make_batch, settings

    device = titan.start_processes("cpu", 120)
    world = dist.get_world_size()
    batch = make_batch(1)
    for ep in eps:
        config = settings(base, dp=world, ep=ep)
        model = build_model(config, base, device)
        weights.load_weights(model, base)
        arrays = {}
        micro = engine.rows_of(model, batch, config.micro_batch_tokens)
        rank, size = model.data_rank
        plan = plan_rows(batch.lengths(), size, config.micro_batch_tokens)
        for replay in (True, False):
            mine = np.zeros(len(batch.tokens), np.float64)
            for rows, logprobs in zip(plan.rows[rank], engine.measure(model, micro, 1.0, replay), strict=True):
                for r, samples in enumerate(rows):
                    at = 0
                    for sample in samples:
                        low, high = batch.sample_offsets[sample : sample + 2]
                        mine[low + 1 : high] = logprobs[r, at : at + high - low - 1].numpy()
                        at += high - low
            whole = torch.from_numpy(mine)
            dist.all_reduce(whole)
            arrays[f"logprobs_{int(replay)}"] = whole.numpy()
        gradients = {}
        optimizer = build_optimizer(model.module, config.optimizer)
        step = optimizer.step

        def keep(*_: object, model=model, gradients=gradients, step=step) -> None:
            for name, parameter in model.module.named_parameters():
                grad = parameter.grad
                gradients["grad/" + name] = (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).numpy()
            step()

        optimizer.step = keep
        numbers = engine.train_step(model, optimizer, config, batch, 1, True)
        weights.publish(model, base, out / f"policy_{world}_{ep}", "float32")
        if rank == 0 and dist.get_rank() == 0:
            np.savez(out / f"layout_{world}_{ep}.npz", **arrays, **gradients)
            (out / f"layout_{world}_{ep}.json").write_text(json.dumps(numbers))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [int(value) for value in sys.argv[3].split(",")])
