"""Run by torchrun: optimizer steps of a layout; every rank's part is joined and rank 0 writes what tests compare."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

torch.set_num_threads(1)
LIMIT = 0.05  # of the gradient norm, far below it


def main(base: Path, out: Path, replicate: int, cp: int, ep: int) -> None:
    os.environ["PRLC_TRAINER_DEVICE"] = "cpu"
    import torch.distributed as dist
    from prlc.runtime.trainer import checkpoint, engine, titan, weights
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.optimizer import build_optimizer

    from tests.trainer.samples import make_batch, settings

    device = titan.start_processes("cpu", 120)
    world = dist.get_world_size()
    config = settings(base, dp=world // cp // replicate, ep=ep)
    config = replace(
        config,
        parallel=replace(config.parallel, dp_replicate=replicate, cp=cp),
        optimizer=replace(config.optimizer, max_grad_norm=LIMIT),
    )
    layout = f"{world}_{replicate}_{cp}_{ep}"
    model = build_model(config, base, device)
    arrays: dict[str, Any] = {}
    numbers: dict[str, Any] = {}

    def whole(tensor: Any) -> Any:
        return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().numpy()

    def keep(prefix: str) -> None:
        for name, parameter in model.module.named_parameters():
            arrays[f"{prefix}/{name}"] = whole(parameter).copy()

    for name in ("adamw", "muon"):
        for loss, low, high in (("dapo", 0.8, 1.28), ("gspo", 0.9, 1.1)):
            used = replace(
                config,
                optimizer=replace(config.optimizer, name=name),
                loss=replace(config.loss, name=loss, ratio_low=low, ratio_high=high),
            )
            weights.load_weights(model, base)
            optimizer = build_optimizer(model.module, used.optimizer)
            step = optimizer.step

            def look(step: Any = step, loss: str = loss, name: str = name) -> None:
                if name == "adamw":
                    for key, parameter in model.module.named_parameters():
                        arrays[f"grad/{loss}/{key}"] = whole(parameter.grad).copy()
                step()

            optimizer.step = look  # type: ignore[method-assign]
            numbers[f"{name}/{loss}"] = engine.train_step(model, optimizer, used, make_batch(1), 1, False)
            optimizer.step = step  # type: ignore[method-assign]
        keep(f"{name}/1")
        checkpoint.save_checkpoint(out / f"{name}_{layout}" / "step_00000001", model.module, optimizer, {"step": 1})
        engine.train_step(model, optimizer, used, make_batch(2), 2, False)
        keep(f"{name}/2")
        other = out / f"{name}_2_1_1_2"
        if world == 1 and other.exists():  # go on from the checkpoint of two ranks
            weights.load_weights(model, base)
            optimizer = build_optimizer(model.module, used.optimizer)
            assert checkpoint.load_newest(other, model.module, optimizer) == {"step": 1}
            engine.train_step(model, optimizer, used, make_batch(2), 2, False)
            keep(f"{name}/resumed")
    if dist.get_rank() == 0:
        np.savez(out / f"step_{layout}.npz", **arrays)
        (out / f"step_{layout}.json").write_text(json.dumps(numbers))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))
