"""Run by torchrun: publish each family, and write it beside as a plain copy of all shards at once would."""

from __future__ import annotations

import json
import sys
import weakref
from pathlib import Path

import torch

torch.set_num_threads(1)


def at_once(model, folder: Path, world: int) -> None:
    """The files of all tensors, rounded before the first is written."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank
    from torch.distributed.tensor import DTensor

    named = {
        name: (value.detach() if model.adapter.kept_exact(name) else value.detach().bfloat16()).contiguous()
        for name, value in model.adapter.to_hf(model.module.state_dict()).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    if world == 1:
        plain = {name: value.to_local() if isinstance(value, DTensor) else value for name, value in named.items()}
        save_file(
            {name: value.clone().contiguous() for name, value in plain.items()},
            str(folder / "model.safetensors"),
            metadata={"format": "pt"},
        )
        return
    names: list = [None] * world
    dist.all_gather_object(names, list(named))
    index = {name: i % world + 1 for i, name in enumerate(sorted(set().union(*names)))}
    parts = str(folder / "parts")
    writer = HuggingFaceStorageWriter(path=parts, save_distributed=True, fqn_to_index_mapping=index)
    dcp.save(named, storage_writer=writer)
    consolidate_safetensors_files_on_every_rank(
        input_dir=parts, output_dir=str(folder), fqn_to_index_mapping=index, num_threads=1
    )


def main(folder: Path, kinds: list[str]) -> None:
    import torch.distributed as dist
    from prlc.runtime.trainer import stream, titan, weights
    from prlc.runtime.trainer.model import build_model

    from tests.trainer.families_worker import settings_of

    device = titan.start_processes("cpu", 120)
    world, rank = dist.get_world_size(), dist.get_rank()
    for kind in kinds:
        layout = (1, world, 1, world)
        model = build_model(settings_of(folder / kind, kind, layout), folder / kind, device)
        weights.load_weights(model, folder / kind)
        alive: list = []
        most, largest, whole = 0, 0, 0

        def noted(value: torch.Tensor, to: torch.dtype, alive: list = alive, real=stream.rounded) -> torch.Tensor:
            nonlocal most, largest, whole
            made = real(value, to)
            alive.append(weakref.ref(made))
            whole, largest = whole + made.nbytes, max(largest, made.nbytes)
            most = max(most, sum(ref().nbytes for ref in alive if ref() is not None))
            return made

        real, stream.rounded = stream.rounded, noted
        try:
            weights.publish(model, folder / kind, folder / f"{kind}_{world}", "bfloat16")
        finally:
            stream.rounded = real
        at_once(model, folder / f"{kind}_{world}_at_once", world)
        (folder / f"{kind}_{world}_{rank}.json").write_text(json.dumps([most, largest, whole]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))
