"""config/trainer.yaml: what the trainer reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Seconds, doc

HEAD_CHUNK_TOKENS = 1024  # tokens whose logits are alive at once: the trainer's head and its memory ledger


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Degrees of the trainer's mesh; world size = dp_replicate x dp_shard x cp, ep borrows ranks from dp_shard x cp."""

    dp_replicate: int = doc("HSDP replicas.", minimum=1)
    dp_shard: int = doc("FSDP2 shards.", minimum=1)
    cp: int = doc("Context-parallel ranks.", minimum=1)
    ep: int = doc("Expert-parallel ranks.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW, decoupled weight decay; constant rate after a linear warm-up."""

    name: Literal["adamw"] = doc("Optimizer.", default="adamw")
    lr: float = doc("Learning rate.", minimum=0)
    betas: tuple[float, float] = doc("Decay of the first and second moment.", default=(0.9, 0.95))
    eps: float = doc("Added to the root of the second moment.", default=1e-8)
    weight_decay: float = doc("Decoupled weight decay.", default=0.0, minimum=0)
    max_grad_norm: float = doc("Gradients are scaled down to this global norm.", default=1.0, minimum=0)
    warmup_steps: int = doc("Steps of linear warm-up.", default=0, minimum=0)
    offload: Literal["none", "cpu"] = doc("Where its state lives.", default="none")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Per-token policy loss: -advantage x clipped importance ratio, tokens outside the mask band left out.

    ratio = exp(trainer logprob - engine logprob). Tokens with ratio outside [mask_low, mask_high] get no gradient.
    """

    name: Literal["masked_is", "ppo_clip"] = doc("masked_is: drop tokens outside the band; ppo_clip: clip the ratio.")
    mask_low: float = doc("Lower end of the band.", default=0.2, minimum=0)
    mask_high: float = doc("Upper end of the band.", default=5.0, minimum=0)
    clip_low: float = doc("ppo_clip: 1 - clip_low is the lower clip.", default=0.2, minimum=0)
    clip_high: float = doc("ppo_clip: 1 + clip_high is the upper clip.", default=0.28, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Router replay: the trainer routes each token to the experts that the engine chose."""

    enabled: bool = doc("Replay the engine's experts in every forward of a sample.")
    compare: Literal["never", "first_batch", "every_step"] = doc(
        "When the mismatch KL without replay is measured too, by one more forward without gradients."
    )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Distributed checkpoints for resume."""

    every_steps: int = doc("Steps between checkpoints; the last step always has one.", minimum=1)
    keep: int = doc("Complete checkpoints kept; 0 keeps all.", default=2, minimum=0)


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """config/trainer.yaml. Paths are relative to the run directory unless absolute."""

    model: str = doc("Folder with the Hugging Face checkpoint that policy version 0 is read from.")
    model_type: str = doc("Hugging Face model_type; picks the trainable model family.")
    seq_len: int = doc("Longest sample, prompt and output, in tokens.", minimum=1)
    max_steps: int = doc("Optimizer steps of the whole run, over all attempts.", minimum=1)
    precision: Literal["fp32", "bf16", "fp8"] = doc("Compute precision; masters are fp32.")
    device: Literal["cpu", "cuda"] = doc("Where it computes: gloo on cpu, NCCL on cuda.")
    parallel: Parallel = doc("Mesh degrees.")
    micro_batch_tokens: int = doc("Most tokens of one micro-batch of a rank.", minimum=1)
    activation_checkpoint: Literal["none", "selective", "full"] = doc("What the backward pass recomputes.")
    optimizer: Optimizer = doc("Optimizer.")
    loss: Loss = doc("Policy loss.")
    replay: Replay = doc("Router replay.")
    checkpoint: Checkpoint = doc("Checkpoints.")
    publish_dtype: Literal["float32", "bfloat16"] = doc("Dtype of published policy weights.")
    keep_policies: int = doc("Published policy versions kept besides those with a checkpoint.", default=3, minimum=2)
    batch_deadline: Seconds = doc("Longest wait for the next batch before the trainer fails.", default=1800.0)
    seed: int = doc("Seed of everything random in the trainer.", default=0)
