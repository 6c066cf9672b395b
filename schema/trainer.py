"""config/trainer.yaml: what the trainer reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import Seconds, doc

HEAD_CHUNK_TOKENS = 1024  # tokens whose logits are alive at once: the trainer's head and its memory ledger

LossName = Literal["masked_is", "icepop", "ppo_clip", "dapo", "gspo", "cispo"]

# (ratio_low, ratio_high) that a loss has unless the spec says other ones
RATIO_BOUNDS: dict[str, tuple[float, float]] = {
    "masked_is": (0.2, 5.0),
    "icepop": (0.5, 5.0),  # alpha and beta of Ring-1T, arXiv 2510.18855
    "ppo_clip": (0.8, 1.2),  # eps 0.2, arXiv 1707.06347
    "dapo": (0.8, 1.28),  # eps 0.2 and 0.28, arXiv 2503.14476
    "gspo": (1 - 3e-4, 1 + 4e-4),  # arXiv 2507.18071, section 5.1
    "cispo": (0.0, 5.0),  # no lower bound, arXiv 2506.13585; 5 is what TRL's documentation advises after ScaleRL
}


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Degrees of the trainer's mesh; world size = dp_replicate x dp_shard x cp, ep borrows ranks from dp_shard x cp."""

    dp_replicate: int = doc("HSDP replicas.", minimum=1)
    dp_shard: int = doc("FSDP2 shards.", minimum=1)
    cp: int = doc("Context-parallel ranks.", minimum=1)
    ep: int = doc("Expert-parallel ranks.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW, or Muon for hidden matrices and AdamW for the rest, with decoupled weight decay."""

    name: Literal["adamw", "muon"] = doc("Optimizer.", default="adamw")
    lr: float = doc("Learning rate.", minimum=0)
    betas: tuple[float, float] = doc("AdamW: decay of the first and second moment.", default=(0.9, 0.95))
    eps: float = doc("AdamW: added to the root of the second moment.", default=1e-8)
    weight_decay: float = doc("Decoupled weight decay.", default=0.0, minimum=0)
    max_grad_norm: float = doc("Gradients are scaled down to this global norm.", default=1.0, minimum=0)
    warmup_steps: int = doc("Steps of linear warm-up.", default=0, minimum=0)
    schedule: Literal["constant", "linear", "cosine"] = doc(
        "Rate after the warm-up: constant, or falling towards 0 at the end of the run.", default="constant"
    )
    offload: Literal["none", "cpu"] = doc("Where its state lives.", default="none")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Policy loss on ratio = exp(trainer logprob - engine logprob), of tokens, for gspo of whole samples.

    masked_is, icepop: -ratio x advantage, tokens outside the bounds dropped; ppo_clip, dapo: the clipped minimum;
    gspo: the same on the sample's ratio; cispo: the log probability weighted by the clipped ratio.
    """

    name: LossName = doc("Form of the loss.")
    ratio_low: float = doc("Lower bound of the ratio.", minimum=0)
    ratio_high: float = doc("Upper bound of the ratio.", minimum=0)
    kl_weight: float = doc("Weight of the k3 estimate of KL(engine || trainer).", default=0.0, minimum=0)
    stale_cap: float | None = doc(
        "Tokens written by older weights get the weight min(ratio, stale_cap) instead of the loss's bounds.",
        default=None,
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Router replay: the trainer routes each token to the experts that the engine chose."""

    enabled: bool = doc("Replay the engine's experts in every forward of a sample.")
    compare: Literal["never", "first_batch", "every_step"] = doc(
        "When the mismatch KL without replay is measured too, by one more forward without gradients; first_batch: on "
        "the first one with enough tokens of the weights that it trains. Replay must not be worse on that one."
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
