"""One model architecture: catalog/models/*.yaml. Shapes are the Hugging Face config's own keys and values;
what is computed from them (parameters, KV bytes, replay bytes) is never stored beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from prlc.schema.fields import doc

AttentionKind = Literal["gqa", "mla", "dsa", "sliding", "hybrid_mamba2", "hybrid_gated_deltanet"]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A published checkpoint of the model."""

    hf_id: str = doc("Repository on the Hugging Face hub.")
    dtype: str = doc("Dtype of its weights, e.g. bfloat16, float8_e4m3fn block.")
    quant: dict[str, Any] | None = doc(
        "Its quantization_config, long lists shortened; absent: not quantized or not stated.", default=None
    )
    source: str = doc("Where that is stated.", default="")


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model of the catalog, or one read from a Hugging Face folder."""

    name: str = doc("Catalog name.", pattern=r"^[a-z0-9][a-z0-9._-]*$")
    hf_id: str = doc("Repository on the Hugging Face hub, or the folder that the model was read from.")
    architecture: str = doc("architectures[0] of the checkpoint's config.json, e.g. Qwen3MoeForCausalLM.")
    model_type: str = doc("model_type of the checkpoint's config.json; config.model_type is the text model's.")
    checkpoints: tuple[Checkpoint, ...] = doc("Published checkpoints.", default=())
    tie_word_embeddings: bool = doc("Whether the head shares the embedding's weight.")
    vocab_size: int = doc("Vocabulary, as the embedding is allocated.", minimum=1)
    max_position_embeddings: int = doc("Longest sequence that the config allows, in tokens.", minimum=1)
    attention_kind: AttentionKind = doc("What attention costs: full heads, latent, sparse latent, sliding, hybrid.")
    config: dict[str, Any] = doc("The text config's keys that shapes and forward depend on.")
    same_architecture: tuple[str, ...] = doc("Other repositories with the same shapes.", default=())
    variants: tuple[dict[str, Any], ...] = doc(
        "Other repositories and the config keys in which they differ.", default=()
    )
    mtp: dict[str, Any] = doc(
        "Multi-token-prediction layers: num_nextn_predict_layers and what is known.", factory=dict
    )
    vision_params: int = doc("Parameters of a vision tower in the checkpoint, not trained here.", default=0, minimum=0)
    published: dict[str, Any] = doc("Sizes as their makers state them.", factory=dict)
    serving: dict[str, Any] = doc("vLLM's names: tool_call_parser, reasoning_parser; notes.", factory=dict)
    sources: tuple[str, ...] = doc("Where the values come from.", default=())
    unverified: tuple[str, ...] = doc("What is taken on trust, and why.", default=())
