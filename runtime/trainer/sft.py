"""A short supervised warm start on the trainer's own model and optimizer.

    python -m prlc.runtime.trainer.sft --model DIR --data FILE.jsonl --steps N --lr X --out DIR

Each line of the data is {"tokens": [...], "loss_mask": [...]}. The result is a Hugging Face folder.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch


def read_samples(path: Path) -> list[tuple[list[int], list[int]]]:
    """(tokens, loss_mask) of each line. Raises ValueError on a line that does not fit."""
    samples = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        record = json.loads(line)
        tokens, mask = record["tokens"], record["loss_mask"]
        if len(tokens) != len(mask) or len(tokens) < 2 or mask[0]:
            raise ValueError(f"{path}:{number}: tokens and loss_mask must be as long, the first untrained")
        samples.append((tokens, mask))
    if not samples:
        raise ValueError(f"{path} holds no sample")
    return samples


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Supervised warm start of a small model.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=64, help="samples a step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["PRLC_TRAINER_DEVICE"] = "cpu"
    import torch.distributed as dist
    from prlc.runtime.trainer import titan, weights
    from prlc.runtime.trainer.engine import forward, rows_of
    from prlc.runtime.trainer.model import build_model, read_config
    from prlc.runtime.trainer.optimizer import build_optimizer
    from prlc.runtime.trainer.packing import trained_only
    from prlc.runtime.transport.batches import Batch
    from prlc.schema import trainer as schema

    samples = read_samples(arguments.data)
    longest = max(len(tokens) for tokens, _ in samples)
    settings = schema.TrainerConfig(
        model=str(arguments.model),
        model_type=read_config(arguments.model)["model_type"],
        seq_len=longest,
        max_steps=arguments.steps,
        precision="fp32",
        device="cpu",
        parallel=schema.Parallel(dp_replicate=1, dp_shard=1, cp=1, ep=1),
        micro_batch_tokens=max(2048, longest),
        activation_checkpoint="none",
        optimizer=schema.Optimizer(lr=arguments.lr),
        loss=schema.Loss(name="masked_is", ratio_low=0.2, ratio_high=5.0),
        replay=schema.Replay(enabled=False, compare="never"),
        checkpoint=schema.Checkpoint(every_steps=arguments.steps),
        publish_dtype="float32",
        seed=arguments.seed,
    )
    device = titan.start_processes("cpu", 600)
    model = build_model(settings, arguments.model, device)
    weights.load_weights(model, arguments.model)
    optimizer = build_optimizer(model.module, settings.optimizer)
    rng = np.random.default_rng(arguments.seed)
    for step in range(1, arguments.steps + 1):
        chosen = [samples[i] for i in rng.integers(0, len(samples), arguments.batch)]
        mask = np.concatenate([m for _, m in chosen]).astype(np.uint8)
        zeros: np.ndarray = np.zeros(len(mask), np.float32)
        batch = Batch(
            tokens=np.concatenate([t for t, _ in chosen]).astype(np.int32),
            loss_mask=mask,
            logprobs=zeros,
            advantages=zeros,
            versions=np.full(len(mask), -1, np.int32),
            sample_offsets=np.concatenate([[0], np.cumsum([len(t) for t, _ in chosen])]).astype(np.int64),
            rewards=np.zeros(len(chosen), np.float32),
        )
        count, loss = max(1, int(mask.sum())), 0.0
        for rows in rows_of(model, batch, settings.micro_batch_tokens):
            trained = torch.from_numpy(rows.mask)

            def backward(logprobs: torch.Tensor, trained: torch.Tensor = trained, count: int = count) -> None:
                (-logprobs[trained].sum() / count).backward()

            result, _ = forward(model, trained_only(rows), 1.0, False, backward)
            loss -= float(result[trained].sum()) / count
        titan.clip_gradients(model.module, settings.optimizer.max_grad_norm, model.dims.ep_enabled)
        optimizer.step()
        optimizer.zero_grad()
        if step == 1 or step % 20 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss:.4f}", flush=True)
    weights.publish(model, arguments.model, arguments.out, "float32")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
