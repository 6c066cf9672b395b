"""Counts of a new model entry, checked against the bytes that its safetensors index states."""

from __future__ import annotations

import json
from pathlib import Path

from prlc.catalog import CatalogError
from prlc.catalog.params import main_params, mtp_params
from prlc.schema.codec import dump
from prlc.schema.model import Model

WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of an element
NEEDED = (
    "name", "hf_id", "architecture", "model_type", "tie_word_embeddings", "vocab_size", "max_position_embeddings",
    "attention_kind", "config",
)  # fmt: skip
BIAS = "router_correction_bias"


def index_bytes(folder: Path) -> int | None:
    """total_size of a folder's model.safetensors.index.json; None without the file. Raises CatalogError."""
    file = folder / "model.safetensors.index.json"
    if not file.is_file():
        return None
    try:
        index = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{file}: {error}") from error
    metadata = index.get("metadata") if isinstance(index, dict) else None
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(size, int | float) or isinstance(size, bool) or size != int(size):
        raise CatalogError(
            f"{file} states no metadata.total_size in bytes", "remove it, or write it by save_pretrained"
        )
    return int(size)


def checked(model: Model, stated: int | None) -> tuple[bool | None, str]:
    """Whether the counts give the `stated` bytes, and that in words; None: cannot be compared.

    Bytes are elements x width of the dtype. A checkpoint may hold the router's correction biases in fp32, and may
    leave out or hold the multi-token-prediction layers; any of these sums that is exact is a match.
    """
    if stated is None:
        return None, "no model.safetensors.index.json: counts are by formula, compared with nothing"
    checkpoint = model.checkpoints[0]
    width = WIDTH.get(checkpoint.dtype.removeprefix("torch."))
    if checkpoint.quant or width is None:
        why = "quantized" if checkpoint.quant else f"of dtype {checkpoint.dtype!r}"
        return None, f"the checkpoint is {why}: its total_size of {stated:,} bytes says no count"
    sums = _sums(model, width)
    for what, size in sums.items():
        if size == stated:
            return True, f"total_size {stated:,} bytes: exactly the {what}"
    computed = "; ".join(f"{what}: {size:,}, {stated - size:+,}" for what, size in sums.items())
    return False, f"total_size is {stated:,} bytes; computed: {computed}"


def _sums(model: Model, width: int) -> dict[str, int]:
    """Bytes of what a checkpoint may hold, plainest first."""
    main, mtp = main_params(model), mtp_params(model)
    found = {}
    for what, parts in (("main model", (main,)), ("main model and MTP layers", (main, mtp))):
        if not all(parts):
            continue
        elements = sum(sum(part.values()) for part in parts)
        found[what] = elements * width
        biases = sum(part.get(BIAS, 0) for part in parts)
        if biases and width < 4:
            found[f"{what}, router biases in fp32"] = elements * width + biases * (4 - width)
    return found


def entry_text(model: Model, said: str) -> str:
    """YAML of a model entry; its counts stand in comments, since they are always computed from the config."""
    main, mtp = main_params(model), mtp_params(model)
    lines = [f"# parameters: {sum(main.values()):,} in the main model"]
    lines += [f"#   {part}: {count:,}" for part, count in sorted(main.items())]
    lines += [f"# parameters of MTP layers, apart: {sum(mtp.values()):,}"] if mtp else []
    return "\n".join([*lines, f"# {said}", dump(model)])


def fields_needed() -> str:
    """What a hand-written entry must hold, one paragraph."""
    return (
        f"A model file needs {', '.join(NEEDED)}; `prlc schema model` has each one's meaning. Its config needs the "
        "keys of a family with a formula, under that family's model_type. A new family needs a formula in "
        "catalog/params.py."
    )
