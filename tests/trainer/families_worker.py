"""Every family in every layout, each layout in processes of its own; rank 0 writes what the test compares."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

torch.set_num_threads(1)


def settings_of(base: Path, kind: str, layout: tuple[int, int, int, int]) -> Any:
    """A trainer's settings in a layout."""
    from prlc.schema.trainer import Parallel

    from tests.trainer.samples import settings

    replicate, shard, cp, ep = layout
    return replace(
        settings(base),
        model_type=kind,
        parallel=Parallel(dp_replicate=replicate, dp_shard=shard, cp=cp, ep=ep),
        activation_checkpoint="none" if layout == (1, 1, 1, 1) else "full",
    )


def run(base: Path, kind: str, layout: tuple[int, int, int, int], device: Any) -> tuple[Any, dict[str, Any]]:
    """The model and its log probabilities by token, gradients and misrouted tokens, natural and replayed."""
    import torch.distributed as dist
    from prlc.runtime.replay.router import replaying, routers
    from prlc.runtime.trainer import titan, weights
    from prlc.runtime.trainer.attention import Visibility
    from prlc.runtime.trainer.head import asking
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.packing import fill_rows, plan_rows

    from tests.trainer.families import TINY
    from tests.trainer.samples import make_batch

    cp = layout[2]
    batch = make_batch(1, samples=6, layers=max(1, TINY[kind][2]))
    batch.advantages = np.arange(len(batch.tokens), dtype=np.float32)  # says which token a label is
    config = settings_of(base, kind, layout)
    model = build_model(config, base, device)
    weights.load_weights(model, base)
    rank, size = model.data_rank
    plan = plan_rows(batch.lengths(), size, config.micro_batch_tokens)
    arrays: dict[str, Any] = {}
    sparse, alone = bool(TINY[kind][2]), layout == (1, 1, 1, 1)
    for replay in (False, True) if sparse and alone else (sparse,):
        found, wrong = np.zeros(len(batch.tokens)), 0
        for samples in plan.rows[rank]:
            rows = fill_rows(batch, samples, plan.width)
            tokens, positions, documents = map(torch.from_numpy, (rows.tokens, rows.positions, rows.documents))
            extra = {"positions": positions, "attention_masks": Visibility(documents)}
            inputs, extra = titan.place_inputs(model.dims, tokens, extra)
            routed = torch.from_numpy(rows.routed)
            ids = [routed[:, :, layer].contiguous() for layer in range(model.routers)] if replay else None
            chosen: list[Any] = []
            with (
                replaying(model.module, ids),
                asking(model.module, torch.from_numpy(rows.labels), 1.0),
                ExitStack() as hooks,
            ):
                for layer, router in enumerate(routers(model.module)):

                    def keep(_m: Any, _i: Any, out: Any, layer: int = layer, chosen: Any = chosen) -> None:
                        chosen.append((layer, out[1].to_local()))

                    hooks.callback(router.register_forward_hook(keep).remove)
                scores = model.module(inputs, **extra)
                scores = scores.to_local() if hasattr(scores, "to_local") else scores
                factors = torch.from_numpy(np.sin(rows.advantages) * rows.mask)
                (scores[..., 0] * factors).sum().backward()
            if ids is not None:
                passes = 1 if config.activation_checkpoint == "none" else 2
                assert len(chosen) == passes * model.routers
                mesh = model.dims.get_optional_mesh("cp")
                for layer, experts in chosen:
                    mine = ids[layer] if mesh is None else titan.sequence_part(ids[layer], mesh, fill=-1)
                    wrong += cp * int(((experts != mine) & (mine >= 0)).sum())
            found[rows.advantages.astype(int)[rows.mask]] = scores[..., 0].detach().numpy()[rows.mask]
        name = "replay" if replay else "natural"
        sums = torch.from_numpy(np.append(found, wrong)) / model.sequence_rank[1]
        dist.all_reduce(sums)
        arrays[f"logprobs/{name}"], arrays[f"wrong/{name}"] = sums[:-1].numpy(), sums[-1].numpy()
        for key, parameter in model.module.named_parameters():
            if not parameter.requires_grad:
                continue
            key = key.replace("._checkpoint_wrapped_module", "")
            arrays[f"grad_{name}/{key}"] = parameter.grad.full_tensor().numpy().copy()
        model.module.zero_grad()
        titan.reshard(model.module)
    return model, arrays


def run_layout(folder: Path, kinds: list[str], layout: tuple[int, int, int, int], rank: int, port: int) -> None:
    """One process of a layout: write {kind}_{layout}.npz and publish."""
    import torch.distributed as dist
    from prlc.runtime.trainer import titan, weights
    from prlc.runtime.trainer.model import build_model

    from tests.trainer.families import label, layouts_of

    world = layout[0] * layout[1] * layout[2]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = titan.start_processes("cpu", 120)
    for kind in kinds:
        if layout not in layouts_of(kind):
            continue
        model, arrays = run(folder / kind, kind, layout, device)
        weights.publish(model, folder / kind, folder / f"{kind}_{label(layout)}", "float32")
        if world == 1:
            for replay in ("natural", "replay"):
                stem = f"grad_{replay}/"
                ours = {k[len(stem) :]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith(stem)}
                named = model.adapter.to_hf(ours)
                arrays |= {f"hf_{replay}/{k}": v.contiguous().numpy() for k, v in named.items()}
        if rank == 0:
            np.savez(folder / f"{kind}_{label(layout)}.npz", **arrays)
    if layout in ((1, 1, 1, 1), (1, 2, 1, 2)):
        config = settings_of(folder / "blocks", "glm4_moe", layout)
        model = build_model(config, folder / "blocks", device)
        weights.load_weights(model, folder / "blocks")
        weights.publish(model, folder / "blocks", folder / f"blocks_{label(layout)}", "float32")
    dist.barrier()
    dist.destroy_process_group()


def main(folder: Path, kinds: list[str]) -> int:
    """All layouts, one after another; processes are forked, so that imports are paid once."""
    os.environ |= {"PRLC_TRAINER_DEVICE": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
    from prlc.runtime.trainer import model  # noqa: F401

    from tests.trainer.families import layouts_of

    fork = multiprocessing.get_context("fork")
    for layout in dict.fromkeys(layout for kind in kinds for layout in layouts_of(kind)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = layout[0] * layout[1] * layout[2]
        processes = [fork.Process(target=run_layout, args=(folder, kinds, layout, r, port)) for r in range(world)]
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            if any(process.exitcode for process in processes):
                for process in processes:
                    process.kill()
            time.sleep(0.05)
        if any(process.exitcode for process in processes):
            print(f"layout {layout} failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2].split(",")))
