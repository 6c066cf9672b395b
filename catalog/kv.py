"""KV-cache bytes of a model in vLLM, before any split over tensor-parallel ranks.

Source: page sizes of vllm/v1/kv_cache_interface.py; the latent and indexer rows of flashmla_sparse.py and
deepseek_v2.py; the recurrent states of mamba_utils.py (vLLM 0.26; tests/catalog).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.catalog.errors import CatalogError
from prlc.catalog.params import config_of, indexer_layers
from prlc.catalog.shapes import count_mixers, full_attention_layers
from prlc.schema.model import Model

# fp8_ds_mla: FlashMLA-sparse's row; on Hopper vLLM takes it for every fp8 setting of a sparse-attention model
KvDtype = Literal["fp32", "bf16", "fp8", "fp8_ds_mla"]
WIDTH: dict[KvDtype, int] = {"fp32": 4, "bf16": 2, "fp8": 1}
SCALE_GROUP = 128  # values that share one fp32 scale in the quantized rows
SCALE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class KvBytes:
    """A sequence of n tokens holds n * per_token + min(n, window) * per_window_token + per_sequence."""

    per_token: int  # layers that see the whole sequence, indexer rows included
    per_window_token: int  # sliding-window layers
    window: int  # tokens; 0 without sliding layers
    per_sequence: int  # Mamba-2 or gated-delta-net state, whatever the length
    per_token_mtp: int  # what one token more costs in the MTP layers, when they are served
    shards: int  # tensor-parallel ranks that the KV heads split over; more ranks hold copies

    def of(self, tokens: int) -> int:
        """Bytes of a sequence of that many tokens, without MTP."""
        return tokens * self.per_token + min(tokens, self.window) * self.per_window_token + self.per_sequence


def kv_bytes(model: Model, dtype: KvDtype) -> KvBytes:
    """KV bytes of `model` with a main cache of `dtype`; a lower bound for hybrids, whose pages vLLM pads.

    Raises CatalogError: fp8_ds_mla for a model without sparse attention, or an unknown model_type.
    """
    c = config_of(model)
    sparse = "index_topk" in c
    if dtype == "fp8_ds_mla" and not sparse:
        raise CatalogError(f"{model.name} has no sparse attention, so no fp8_ds_mla cache", "use fp8 or bf16")
    mtp_layers = int(model.mtp.get("num_nextn_predict_layers") or 0)
    layers = full_attention_layers(c)
    if "kv_lora_rank" in c:
        row = _latent_row(c["kv_lora_rank"], c["qk_rope_head_dim"], dtype)
        index = _indexer_row(c["index_head_dim"]) if sparse else 0
        per_token = layers * row + indexer_layers(c) * index
        return KvBytes(
            per_token=per_token, per_window_token=0, window=0, per_sequence=0,
            per_token_mtp=mtp_layers * (row + index), shards=1,
        )  # fmt: skip
    kv_heads = int(c["num_key_value_heads"])
    head = int(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
    row = 2 * kv_heads * head * WIDTH[dtype]
    sliding = count_mixers(c, "sliding")
    return KvBytes(
        per_token=layers * row,
        per_window_token=sliding * row,
        window=int(c["sliding_window"]) if sliding else 0,
        per_sequence=state_bytes(model),
        per_token_mtp=mtp_layers * row,
        shards=kv_heads,
    )


def state_bytes(model: Model) -> int:
    """Bytes of the recurrent state of one sequence: the convolution's tail in bf16 and the state itself."""
    c = config_of(model)
    layers = count_mixers(c, "linear")
    if layers == 0:
        return 0
    if c["model_type"] == "nemotron_h":
        heads, head, state = c["mamba_num_heads"], c["mamba_head_dim"], c["ssm_state_size"]
        conv = (c["conv_kernel"] - 1) * (heads * head + 2 * c["n_groups"] * state)
        recurrent, dtype = heads * head * state, c.get("mamba_ssm_cache_dtype")
    else:
        heads, head, state = c["linear_num_value_heads"], c["linear_value_head_dim"], c["linear_key_head_dim"]
        conv = (c["linear_conv_kernel_dim"] - 1) * (2 * c["linear_num_key_heads"] * state + heads * head)
        recurrent, dtype = heads * head * state, c.get("mamba_ssm_dtype")
    return int(layers * (2 * conv + (4 if dtype == "float32" else 2) * recurrent))


def _latent_row(latent: int, rope: int, dtype: KvDtype) -> int:
    """One vector of latent + rotated part, no V; the sparse row keeps the rotated part in bf16."""
    if dtype == "fp8_ds_mla":
        return latent + latent // SCALE_GROUP * SCALE_BYTES + 2 * rope
    return (latent + rope) * WIDTH[dtype]


def _indexer_row(head: int) -> int:
    """The indexer's key: fp8 with scales, whatever the main cache's dtype."""
    return head + head // SCALE_GROUP * SCALE_BYTES
