"""Run by torchrun: gradients of the whole model with the plain and the fused head, and the collectives of each."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)


def plain_forward(self: Any, input: Any) -> Any:
    """The head as anyone would write it: all logits, log_softmax."""
    from prlc.runtime.trainer.titan import Linear

    labels, temperature = self.asked
    logits = Linear.forward(self, input).to_local().float() / temperature
    table = logits.log_softmax(-1)
    logprobs = table.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    scores = torch.stack([logprobs, -(table.exp() * table).sum(-1)], -1) * (labels >= 0)[..., None]
    return DTensor.from_local(scores, input.device_mesh, input.placements, run_check=False)


class Collectives(TorchDispatchMode):
    """Counts collectives by name, those inside DTensor operations too."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is DTensor for kind in types):
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional"):
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def main(base: Path, out: Path, ep: int) -> None:
    os.environ["PRLC_TRAINER_DEVICE"] = "cpu"
    import torch.distributed as dist
    from prlc.runtime.trainer import engine, head, titan, weights
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.packing import trained_only

    from tests.trainer.samples import make_batch, settings

    device = titan.start_processes("cpu", 120)
    world = dist.get_world_size()
    config = settings(base, dp=world, ep=ep)
    forwards = {"fused": head.FusedHead.forward, "plain": plain_forward}
    used = ["fused"]
    head.FusedHead.forward = lambda self, input: forwards[used[0]](self, input)  # type: ignore[method-assign]
    model = build_model(config, base, device)
    weights.load_weights(model, base)
    alone = make_batch(2, samples=1)  # nothing but padding on the second rank
    micro = [
        trained_only(rows)
        for batch in (make_batch(1), alone)
        for rows in engine.rows_of(model, batch, config.micro_batch_tokens)
    ]
    for name, chunk in (("plain", None), ("chunk_5", 5), ("chunk_1000", 1000)):
        used[0] = "fused" if chunk else "plain"
        model.module.lm_head.chunk_tokens = chunk
        model.module.zero_grad()
        found: dict[str, Any] = {"logprobs": [], "entropies": []}
        with Collectives() as collectives:
            for rows in micro:
                factors = torch.from_numpy(rows.advantages)

                def backward(logprobs: torch.Tensor, factors: torch.Tensor = factors) -> None:
                    (logprobs * factors).sum().backward()

                logprobs, entropies = engine.forward(model, rows, 0.7, True, backward)
                found["logprobs"].append(logprobs.numpy().ravel())
                found["entropies"].append(entropies.numpy().ravel())
        arrays = {key: np.concatenate(value) for key, value in found.items()}
        for key, parameter in model.module.named_parameters():
            arrays["grad/" + key] = parameter.grad.full_tensor().numpy()
        np.savez(out / f"{name}_{dist.get_rank()}.npz", **arrays)
        (out / f"{name}_{dist.get_rank()}.json").write_text(json.dumps(collectives.counts))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
