"""A tiny random model and batches for the trainer's tests; nothing here asserts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from prlc.runtime.transport.batches import Batch
from prlc.schema.trainer import Checkpoint, Loss, Optimizer, Parallel, Replay, TrainerConfig

VOCABULARY, LAYERS, EXPERTS, TOP_K = 64, 4, 16, 4


def write_base(folder: Path) -> None:
    """A random Qwen3-MoE checkpoint."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        moe_intermediate_size=64,
        norm_topk_prob=True,
        mlp_only_layers=[],
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        Qwen3MoeForCausalLM(config).to(torch.float32).save_pretrained(folder)


def settings(model: Path, *, dp: int = 1, ep: int = 1, steps: int = 3, replay: bool = True) -> TrainerConfig:
    """A trainer for the tiny model on the CPU in float32."""
    return TrainerConfig(
        model=str(model),
        model_type="qwen3_moe",
        seq_len=48,
        max_steps=steps,
        precision="fp32",
        device="cpu",
        parallel=Parallel(dp_replicate=1, dp_shard=dp, cp=1, ep=ep),
        micro_batch_tokens=128,
        activation_checkpoint="none",
        optimizer=Optimizer(lr=1e-3),
        loss=Loss(name="masked_is", ratio_low=0.2, ratio_high=5.0),
        replay=Replay(enabled=replay, compare="never"),
        checkpoint=Checkpoint(every_steps=1),
        publish_dtype="float32",
        batch_deadline=60.0,
    )


def make_batch(step: int, samples: int = 14, layers: int = LAYERS) -> Batch:
    """Random samples with a random but valid routing; the last token of each has none."""
    rng = np.random.default_rng(step)
    lengths = rng.integers(9, 33, samples)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(offsets[-1])
    mask, valid = np.zeros(total, np.uint8), np.ones(total, np.uint8)
    for low, high in itertools.pairwise(offsets):
        mask[low + 4 : high] = 1
        valid[high - 1] = 0
    routed = rng.random((total, layers, EXPERTS)).argsort(-1)[..., :TOP_K].astype(np.uint8)
    return Batch(
        tokens=rng.integers(1, VOCABULARY, total).astype(np.int32),
        loss_mask=mask,
        logprobs=np.where(mask, -4.2, 0.0).astype(np.float32),
        advantages=rng.normal(size=total).astype(np.float32),
        versions=np.where(mask, step - 1, -1).astype(np.int32),
        sample_offsets=offsets,
        rewards=rng.random(samples).astype(np.float32),
        routed_experts=routed,
        routed_valid=valid,
        meta={"step": step, "temperature": 1.0},
    )
