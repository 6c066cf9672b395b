"""Families with DeepSeek sparse attention (DSA): DeepSeek-V3.2 and GLM-5.

An indexer scores all keys for each query and keeps the best; latent attention runs over those alone. The indexer is
frozen, as transformers has it: no gradient reaches it. Under context parallelism queries stay where they are; each
layer gathers the latents and the indexer's keys, 576 and 128 numbers a token, and chooses among the whole sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.attention import Visibility
from prlc.runtime.trainer.families import names
from prlc.runtime.trainer.families.decoder import decoder, replicated
from prlc.runtime.trainer.families.grouped import corrected_block, eps
from prlc.runtime.trainer.families.latent import LatentAttention, latent_fields
from prlc.runtime.trainer.families.layers import linear
from prlc.runtime.trainer.families.rotary import Rotary, rotary
from torch import nn
from torch.distributed.tensor import DTensor, Partial
from torch.utils.checkpoint import checkpoint

WORKING_BYTES = 2**28  # of scores, or of gathered latents, that are alive at once


class Indexer(titan.Module):
    """Chooses keys: top k of sum over heads of weight x relu(q . k) (DeepSeek-V3.2, arXiv 2512.02556, eq. 1)."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.Module.Config):
        """Sizes are Hugging Face's index_n_heads, index_head_dim, index_topk."""

        heads: int
        head_dim: int
        top_k: int
        wq_b: titan.Linear.Config
        wk: titan.Linear.Config
        k_norm: titan.LayerNorm.Config
        weights_proj: titan.Linear.Config
        rope: Rotary.Config

        def set_sharding(self) -> None:
            """All weights are whole on every rank until FSDP2 splits them."""
            for part in (self.wq_b, self.wk, self.weights_proj):
                part.sharding_config = replicated("weight")
            self.k_norm.sharding_config = replicated("weight", "bias")
            self.rope.sharding_config = replicated("cache")

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, self.head_dim, self.top_k = config.heads, config.head_dim, config.top_k
        self.wq_b = config.wq_b.build()
        self.wk = config.wk.build()
        self.k_norm = config.k_norm.build()
        self.weights_proj = config.weights_proj.build()
        self.rope = config.rope.build()
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: Any, low_rank_query: Any, positions: Any, visible: Visibility, cp: Any) -> torch.Tensor:
        """Numbers of the chosen keys, int32 [B, L, k] in whole rows; -1 where fewer are visible.

        x [B, L, D] and low_rank_query [B, L, R] of this rank's queries.
        """
        batch, length, _ = x.shape
        query = self.wq_b(low_rank_query).view(batch, length, self.heads, self.head_dim)
        key = self.k_norm(self.wk(x)).unsqueeze(2)
        query, key = (plain(t) for t in self.rope(query, key, positions))
        weights = plain(self.weights_proj(x)).float() * self.heads**-0.5
        keys = titan.gather_keys(key[:, :, 0], cp).float()
        whole, here = keys.size(1), query.size(1)
        first = 0 if cp is None else cp.get_local_rank() * here
        step = max(1, WORKING_BYTES // (4 * query.size(0) * self.heads * whole))
        chosen = []
        for low in range(0, here, step):
            high = min(low + step, here)
            part = slice(low, high)
            products = torch.einsum("blhd,bsd->blhs", query[:, part].float(), keys) * self.head_dim**-0.5
            scores = torch.einsum("blh,blhs->bls", weights[:, part], F.relu(products))
            seen = visible.seen(first + low, first + high, whole)
            best = scores.masked_fill(~seen, float("-inf")).topk(min(self.top_k, whole), -1)
            chosen.append(best.indices.int().masked_fill(best.values == float("-inf"), -1))
        return torch.cat(chosen, 1)


class SparseAttention(LatentAttention):
    """Latent attention over chosen keys, in the absorbed form: queries meet latents, values are expanded after."""

    @dataclass(kw_only=True, slots=True)
    class Config(LatentAttention.Config):
        """`indexer` is None where the layer takes the choice of layer `source`."""

        indexer: Indexer.Config | None
        source: int
        followed: bool

        def set_layer_sharding(self, layer: Any, enable_sp: bool, enable_ep: bool) -> None:
            """Sharding of the block around this attention."""
            LatentAttention.Config.set_layer_sharding(self, layer, enable_sp, enable_ep)
            if self.indexer is not None:
                self.indexer.set_sharding()

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.indexer = config.indexer.build() if config.indexer is not None else None
        self.source, self.followed = config.source, config.followed
        self.cp: Any = None

    def parallelize(self, parallel_dims: Any) -> None:
        """Also remember the ranks that share a sequence."""
        super().parallelize(parallel_dims)
        self.cp = parallel_dims.get_optional_mesh("cp")

    def forward(self, x: Any, attention_masks: Any, positions: Any = None) -> Any:
        """x [B, L, D]; attention_masks of whole rows."""
        batch, length, _ = x.shape
        low = self.q_norm(self.wq_a(x))
        query = self.wq_b(low).view(batch, length, self.n_heads, self.qk_head_dim)
        nope, rope = torch.split(query, [self.qk_nope_head_dim, self.qk_rope_head_dim], -1)
        compressed, key = torch.split(self.wkv_a(x), [self.kv_lora_rank, self.qk_rope_head_dim], -1)
        rope, key = self.rope(rope, key.unsqueeze(2), positions)
        latent = torch.cat([self.kv_norm(compressed), key.squeeze(2)], -1)
        chosen = self._chosen(x, low, attention_masks, positions)
        out = absorbed_attention(
            plain(nope),
            plain(rope),
            titan.gather_keys(plain(latent), self.cp),
            chosen,
            whole_weight(self.wkv_b.weight).view(self.n_heads, -1, self.kv_lora_rank),
            self.softmax_scale,
        ).flatten(2)
        if isinstance(x, DTensor):
            out = DTensor.from_local(out, x.device_mesh, x.placements, run_check=False)
        return self.wo(out)

    def _chosen(self, x: Any, low: Any, attention_masks: Any, positions: Any) -> torch.Tensor:
        """This layer's choice, or that of the layer it follows; kept beside the masks, as recomputation asks again."""
        if self.indexer is None:
            shared: torch.Tensor = attention_masks.chosen[self.source]
            return shared
        chosen: torch.Tensor = self.indexer(x, low, positions, attention_masks, self.cp)
        if self.followed:
            attention_masks.chosen[self.source] = chosen
        return chosen


def plain(tensor: Any) -> torch.Tensor:
    """This rank's part."""
    result: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return result


def whole_weight(weight: Any) -> torch.Tensor:
    """A weight as a plain tensor; each rank's tokens give a part of its gradient, FSDP2 adds the parts."""
    if not isinstance(weight, DTensor):
        return weight
    result: torch.Tensor = weight.to_local(grad_placements=[Partial()] * weight.device_mesh.ndim)
    return result


def absorbed_attention(
    nope: torch.Tensor,
    rope: torch.Tensor,
    latents: torch.Tensor,
    chosen: torch.Tensor,
    expand: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention [B, L, N, V] of queries over the latents that they chose, some queries at a time.

    nope [B, L, N, P], rope [B, L, N, R], latents [B, S, rank + R], chosen [B, L, k] (-1: none),
    expand [N, P + V, rank]: what turns a latent into a head's key and value.
    """
    rank, size = expand.size(-1), nope.size(-1)
    to_key, to_value = expand[:, :size], expand[:, size:]
    step = max(1, WORKING_BYTES // (latents.element_size() * len(chosen) * chosen.size(-1) * latents.size(-1)))

    def some(nope: torch.Tensor, rope: torch.Tensor, latents: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        query = torch.cat([torch.einsum("blnp,npr->blnr", nope, to_key), rope], -1)
        index = ids.clamp(min=0).long().flatten(1)[..., None].expand(-1, -1, latents.size(-1))
        keys = latents.gather(1, index).view(*ids.shape, -1)
        scores = torch.einsum("blnr,blkr->blnk", query.float(), keys.float()) * scale
        weights = scores.masked_fill((ids < 0)[:, :, None], float("-inf")).softmax(-1)
        mixed = torch.einsum("blnk,blkr->blnr", weights.to(keys.dtype), keys[..., :rank])
        return torch.einsum("blnr,nvr->blnv", mixed, to_value)

    parts = []
    for low in range(0, nope.size(1), step):
        part = slice(low, low + step)
        arguments = (nope[:, part], rope[:, part], latents, chosen[:, part])
        parts.append(checkpoint(some, *arguments, use_reentrant=False))
    return torch.cat(parts, 1)


def indexer_kinds(hf: dict[str, Any]) -> list[str]:
    """Whether a layer's indexer is its own ("full") or an earlier layer's ("shared").

    From indexer_types, or the schedule that stands for it; source: transformers' GlmMoeDsaConfig.
    """
    count = hf["num_hidden_layers"]
    if hf.get("indexer_types"):
        return list(hf["indexer_types"])
    every, offset = max(hf.get("index_topk_freq", 1), 1), hf.get("index_skip_topk_offset", 2)
    return ["full" if max(index - offset + 1, 0) % every == 0 else "shared" for index in range(count)]


def sparse(hf: dict[str, Any], length: int) -> tuple[Any, names.Names]:
    """DeepSeek-V3.2 and GLM-5, with an indexer in every layer or shared by several."""
    kinds, size, head = indexer_kinds(hf), hf["hidden_size"], hf["index_head_dim"]
    interleaved = bool(hf.get("indexer_rope_interleave", hf["model_type"] == "glm_moe_dsa"))

    def indexer() -> Indexer.Config:
        return Indexer.Config(
            heads=hf["index_n_heads"],
            head_dim=head,
            top_k=hf["index_topk"],
            wq_b=linear(hf["q_lora_rank"], hf["index_n_heads"] * head),
            wk=linear(size, head),
            k_norm=titan.LayerNorm.Config(
                normalized_shape=head, eps=1e-6, param_init={"weight": nn.init.ones_, "bias": nn.init.zeros_}
            ),
            weights_proj=linear(size, hf["index_n_heads"]),
            rope=rotary(hf, hf["qk_rope_head_dim"], length, interleaved=interleaved),
        )

    layers, source = [], 0
    for index, kind in enumerate(kinds):
        source = index if kind == "full" else source
        attention = SparseAttention.Config(
            **latent_fields(hf, length),
            indexer=indexer() if kind == "full" else None,
            source=source,
            followed=kinds[index + 1 : index + 2] == ["shared"],
        )
        layers.append(corrected_block(hf, index, attention))
    config = decoder(hf, layers, eps(hf))
    indexed = {
        f"layers.{{}}.attention.indexer.{part}": f"model.layers.{{}}.self_attn.indexer.{part}"
        for part in ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight")
    }
    common = names.ROOT | names.NORMS | names.LATENT | names.DENSE | names.MIXTURE
    return config, names.Names(common | indexed, tied=config.enable_weight_tying)
