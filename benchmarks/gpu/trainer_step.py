"""One optimizer step of the runtime's trainer on one GPU, over a cut Qwen3-30B-A3B: seconds, tokens/s, MFU, memory.

    python benchmarks/gpu/trainer_step.py --out results.json            (one H200, about 5 minutes)

True layer shapes (hidden 2048, 128 experts of 768, top-8, 32 query and 4 key-value heads), as many layers as fit,
random weights; samples of one length fill the micro-batches. Variants run in one process, one after the other, and
are compared with the first. Peak memory stands beside what `prlc plan` would print for the same layout.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

MODEL = "qwen3-30b-a3b"
STEPS = 4  # the first is warm-up


def cut_config(layers: int) -> dict[str, Any]:
    """config.json of the catalog's model with this many layers."""
    from prlc import catalog

    config = dict(catalog.model(MODEL).config)
    return {
        **config,
        "num_hidden_layers": layers,
        "architectures": ["Qwen3MoeForCausalLM"],
        "max_position_embeddings": 262144,
    }


def batch_of(config: dict[str, Any], samples: int, length: int, seed: int) -> Any:
    """Random samples; every token but the first is trained, routes are a uniform choice without repetition."""
    from prlc.runtime.transport.batches import Batch

    rng = np.random.default_rng(seed)
    count, layers, top_k = samples * length, config["num_hidden_layers"], config["num_experts_per_tok"]
    mask = np.ones(count, np.uint8)
    mask[::length] = 0
    valid = np.ones(count, np.uint8)
    valid[length - 1 :: length] = 0  # no row for the last token
    routed = rng.random((count, layers, config["num_experts"]), np.float32).argpartition(top_k, -1)[..., :top_k]
    return Batch(
        tokens=rng.integers(0, config["vocab_size"], count).astype(np.int32),
        loss_mask=mask,
        logprobs=np.full(count, -np.log(config["vocab_size"]), np.float32) * mask,
        advantages=np.repeat(rng.standard_normal(samples).astype(np.float32), length),
        versions=np.zeros(count, np.int32),
        sample_offsets=np.arange(samples + 1, dtype=np.int64) * length,
        rewards=np.zeros(samples, np.float32),
        routed_experts=routed.astype(np.uint8),
        routed_valid=valid,
        meta={"step": 1, "temperature": 1.0},
    )


def step_flops(config: dict[str, Any], tokens: int, length: int, recompute: bool) -> float:
    """FLOPs of a step: 2 a weight and token and, causal, 2 x length x width for attention, three passes

    The backward pass is two. Useful work alone, unless `recompute`: then layers and head run forward once more.
    """
    d, heads, kv, head = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    attention = d * head * (2 * heads + 2 * kv)
    experts = 3 * d * config["moe_intermediate_size"] * config["num_experts_per_tok"] + d * config["num_experts"]
    weights = config["num_hidden_layers"] * (attention + experts) + d * config["vocab_size"]
    scores = config["num_hidden_layers"] * length * heads * head
    return tokens * (4 if recompute else 3) * 2.0 * (weights + scores)


def predicted(config: dict[str, Any], tokens: int, recompute: str) -> float:
    """Bytes that the plan's ledger gives the same layout."""
    from prlc import catalog
    from prlc.compiler.layout import TrainerLayout
    from prlc.compiler.ledger.trainer import trainer_ledger

    entry = catalog.model(MODEL)
    cut = dataclasses.replace(entry, config={**entry.config, "num_hidden_layers": config["num_hidden_layers"]})
    layout = TrainerLayout(
        nodes=(0,), ranks_per_node=1, dp_replicate=1, dp_shard=1, cp=1, ep=1, offload="none",
        activation_checkpoint=recompute, micro_batch_tokens=tokens,  # type: ignore[arg-type]
    )  # fmt: skip
    return float(trainer_ledger(catalog.facts(cut), catalog.gpu("h200"), layout, "bf16", tokens).total)


def run(folder: Path, config: dict[str, Any], variant: dict[str, Any]) -> dict[str, Any]:
    """Seconds and memory of one variant: {length, samples, micro, recompute, replay}."""
    import torch
    from prlc.runtime.trainer import titan
    from prlc.runtime.trainer.engine import train_step
    from prlc.runtime.trainer.model import build_model
    from prlc.runtime.trainer.optimizer import build_optimizer
    from prlc.schema.trainer import Checkpoint, Loss, Optimizer, Parallel, Replay, TrainerConfig

    settings = TrainerConfig(
        model=str(folder), model_type="qwen3_moe", seq_len=variant["length"], max_steps=100, precision="bf16",
        device="cuda", parallel=Parallel(dp_replicate=1, dp_shard=1, cp=1, ep=1),
        micro_batch_tokens=variant["micro"], activation_checkpoint=variant["recompute"],
        optimizer=Optimizer(lr=1e-6), loss=Loss(name="masked_is", ratio_low=0.0, ratio_high=1e9),
        replay=Replay(enabled=variant["replay"], compare="never"), checkpoint=Checkpoint(every_steps=100),
        publish_dtype="bfloat16",
    )  # fmt: skip
    device = titan.start_processes("cuda", 300)
    torch.cuda.reset_peak_memory_stats()
    model = build_model(settings, folder, device)
    optimizer = build_optimizer(model.module, settings.optimizer)
    batch = batch_of(config, variant["samples"], variant["length"], 0)
    seconds, numbers = [], {}
    for step in range(1, STEPS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        numbers = train_step(model, optimizer, settings, batch, step, False)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    tokens = variant["length"] * variant["samples"]
    median = statistics.median(seconds[1:])
    full = variant["recompute"] == "full"
    peak = torch.cuda.max_memory_reserved()
    plan = predicted(config, variant["micro"], variant["recompute"])
    result = {
        **variant,
        "seconds": [round(s, 4) for s in seconds],
        "tokens_per_second": round(tokens / median),
        "mfu": round(step_flops(config, tokens, variant["length"], False) / median / 989e12, 4),
        "hfu": round(step_flops(config, tokens, variant["length"], full) / median / 989e12, 4),
        "peak_reserved_gib": round(peak / 2**30, 2),
        "peak_allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "ledger_gib": round(plan / 2**30, 2),
        "loss": numbers["loss"],
        "grad_norm": numbers["grad_norm"],
    }
    del model, optimizer
    gc.collect()  # FSDP2's modules refer to each other
    torch.cuda.empty_cache()
    return result


VARIANTS = [
    {"length": 8192, "samples": 8, "micro": 32768, "recompute": "full", "replay": True},
    {"length": 8192, "samples": 8, "micro": 32768, "recompute": "full", "replay": False},
    {"length": 8192, "samples": 8, "micro": 8192, "recompute": "none", "replay": True},
    {"length": 8192, "samples": 8, "micro": 16384, "recompute": "selective", "replay": True},
    {"length": 32768, "samples": 2, "micro": 32768, "recompute": "full", "replay": True},
    {"length": 65536, "samples": 1, "micro": 65536, "recompute": "full", "replay": True},
]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="One training step on one GPU.")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    config = cut_config(arguments.layers)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        for variant in VARIANTS:
            try:
                results.append(run(Path(folder), config, variant))
            except Exception as error:  # the next variant is worth its own try; the reason is kept
                traceback.print_exc()
                results.append({**variant, "failed": f"{type(error).__name__}: {error}"[:300]})
            print(json.dumps(results[-1]), flush=True)
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
