"""A model from a Hugging Face folder: its config.json says everything that shapes need."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prlc.catalog.errors import CatalogError
from prlc.catalog.params import FAMILIES, known_model_types
from prlc.schema.model import AttentionKind, Checkpoint, Model

# keys that say how a checkpoint is loaded or trained, not what the model is
NOT_SHAPE = frozenset({
    "architectures", "attention_dropout", "auto_map", "dtype", "hidden_dropout", "initializer_range",
    "output_router_logits", "quantization_config", "time_step_limit", "torch_dtype", "transformers_version",
    "use_cache", "use_mamba_kernels",
})  # fmt: skip
HYBRIDS: dict[str, AttentionKind] = {
    "nemotron_h": "hybrid_mamba2",
    "qwen3_next": "hybrid_gated_deltanet",
    "qwen3_5_moe_text": "hybrid_gated_deltanet",
}


def read(path: Path) -> Model:
    """Model of a config.json or of the folder that holds one. An absent tie_word_embeddings means untied, the
    default of every known family. Raises CatalogError: no JSON file, unknown model_type, a missing key."""
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise CatalogError(f"{path} holds no config.json", "give a folder written by save_pretrained, or a model file")
    try:
        whole = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{file}: {error}") from error
    if not isinstance(whole, dict):
        raise CatalogError(f"{file} is not a JSON object")
    text = whole.get("text_config", whole)
    if not isinstance(text, dict):
        raise CatalogError(f"{file}: text_config is not a JSON object")
    if text.get("model_type") not in FAMILIES:
        raise CatalogError(
            f"{file}: no parameter formula for model_type {text.get('model_type')!r}",
            f"known: {', '.join(known_model_types())}",
        )
    missing = [key for key in ("hidden_size", "vocab_size", "max_position_embeddings") if key not in text]
    if missing:
        raise CatalogError(f"{file} has no {', '.join(missing)}", "write the config with every key (use_diff=False)")
    folder = file.resolve().parent
    return Model(
        name=re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).strip("-._") or "model",
        hf_id=str(folder),  # whole, so that a bundle finds it from anywhere and no one takes it for a hub id
        architecture=str((whole.get("architectures") or [whole.get("model_type")])[0]),
        model_type=str(whole.get("model_type")),
        checkpoints=(_checkpoint(whole, text, str(folder)),),
        tie_word_embeddings=bool(text.get("tie_word_embeddings", whole.get("tie_word_embeddings", False))),
        vocab_size=text["vocab_size"],
        max_position_embeddings=text["max_position_embeddings"],
        attention_kind=attention_kind(text),
        config={key: value for key, value in text.items() if key not in NOT_SHAPE},
        mtp={"num_nextn_predict_layers": int(text.get("num_nextn_predict_layers") or 0)},
        sources=(str(file),),
    )


def attention_kind(config: dict[str, Any]) -> AttentionKind:
    """How the attention of a text config works."""
    if config["model_type"] in HYBRIDS:
        return HYBRIDS[config["model_type"]]
    if "index_topk" in config:
        return "dsa"
    if config.get("kv_lora_rank"):
        return "mla"
    return "sliding" if "sliding_attention" in (config.get("layer_types") or ()) else "gqa"


def _checkpoint(whole: dict[str, Any], text: dict[str, Any], path: str) -> Checkpoint:
    dtypes = (c.get(key) for c in (whole, text) for key in ("dtype", "torch_dtype"))
    dtype = next((str(value) for value in dtypes if value), "not stated")
    return Checkpoint(hf_id=path, dtype=dtype, quant=whole.get("quantization_config"))
