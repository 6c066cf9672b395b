"""Two optimizer steps of families in one layout over NCCL; rank 0 writes their numbers.

DEGREES: dp_replicate,dp_shard,cp,ep. Started by torchrun:

python -m torch.distributed.run --nproc-per-node 2 -m tests.trainer.gpu_worker FOLDER KINDS DEGREES OUT
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path


def main() -> None:
    """Command line."""
    import torch
    import torch.distributed as dist
    from prlc.runtime.trainer import titan, weights
    from prlc.runtime.trainer.engine import train_step
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.optimizer import build_optimizer
    from prlc.schema.trainer import Parallel, Replay

    from tests.trainer.families import TINY
    from tests.trainer.samples import make_batch, settings

    folder, kinds, layout, out = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], Path(sys.argv[4])
    replicate, shard, cp, ep = map(int, layout.split(","))
    device = titan.start_processes("cuda", 120)
    torch.backends.cuda.matmul.allow_tf32 = False
    found = {}
    for kind in kinds:
        sparse = bool(TINY[kind][2])
        if ep > 1 and not sparse:  # a process has one mesh
            continue
        config = replace(
            settings(folder / kind),
            model_type=kind,
            device="cuda",
            activation_checkpoint="full",
            replay=Replay(enabled=sparse, compare="never"),
            parallel=Parallel(dp_replicate=replicate, dp_shard=shard, cp=cp, ep=ep),
        )
        model = build_model(config, folder / kind, device)
        weights.load_weights(model, folder / kind)
        optimizer = build_optimizer(model.module, config.optimizer)
        steps = []
        for step in (1, 2):
            batch = make_batch(step, layers=max(1, TINY[kind][2]))
            steps.append(train_step(model, optimizer, config, batch, step, False))
        found[kind] = steps
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
