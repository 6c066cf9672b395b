"""Names of a family's weights: ours beside Hugging Face's, and views of one as the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

EMBEDDING, HEAD = "tok_embeddings.weight", "lm_head.weight"
EXPERTS = "layers.{}.moe.routed_experts.inner_experts."
ROOT = {EMBEDDING: "model.embed_tokens.weight", "norm.weight": "model.norm.weight", HEAD: "lm_head.weight"}
NORMS = {
    "layers.{}.attention_norm.weight": "model.layers.{}.input_layernorm.weight",
    "layers.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
}
DENSE = {
    f"layers.{{}}.feed_forward.{ours}.weight": f"model.layers.{{}}.mlp.{theirs}.weight"
    for ours, theirs in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
}
GROUPED_QUERY = {
    f"layers.{{}}.attention.{ours}": f"model.layers.{{}}.self_attn.{theirs}"
    for ours, theirs in (
        ("qkv_linear.wq.weight", "q_proj.weight"),
        ("qkv_linear.wk.weight", "k_proj.weight"),
        ("qkv_linear.wv.weight", "v_proj.weight"),
        ("qkv_linear.wq.bias", "q_proj.bias"),
        ("qkv_linear.wk.bias", "k_proj.bias"),
        ("qkv_linear.wv.bias", "v_proj.bias"),
        ("wo.weight", "o_proj.weight"),
        ("wo.bias", "o_proj.bias"),
        ("q_norm.weight", "q_norm.weight"),
        ("k_norm.weight", "k_norm.weight"),
        ("sinks", "sinks"),
    )
}
LATENT = {
    f"layers.{{}}.attention.{ours}.weight": f"model.layers.{{}}.self_attn.{theirs}.weight"
    for ours, theirs in (
        ("wq", "q_proj"),
        ("wq_a", "q_a_proj"),
        ("q_norm", "q_a_layernorm"),
        ("wq_b", "q_b_proj"),
        ("wkv_a", "kv_a_proj_with_mqa"),
        ("kv_norm", "kv_a_layernorm"),
        ("wkv_b", "kv_b_proj"),
        ("wo", "o_proj"),
    )
}
MIXTURE = {
    "layers.{}.moe.router.gate.weight": "model.layers.{}.mlp.gate.weight",
    "layers.{}.moe.expert_bias_E": "model.layers.{}.mlp.gate.e_score_correction_bias",
    f"{EXPERTS}w1_EFD": "model.layers.{}.mlp.experts.{}.gate_proj.weight",
    f"{EXPERTS}w2_EDF": "model.layers.{}.mlp.experts.{}.down_proj.weight",
    f"{EXPERTS}w3_EFD": "model.layers.{}.mlp.experts.{}.up_proj.weight",
} | {
    f"layers.{{}}.moe.shared_experts.{ours}.weight": f"model.layers.{{}}.mlp.shared_experts.{theirs}.weight"
    for ours, theirs in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
}


class Names:
    """Maps a model's state to a checkpoint's tensors, as views: what is read into them is in the model.

    A name with a second {} stands for one tensor an expert; a name in `transposed` for one with its last two
    dimensions swapped.
    """

    def __init__(
        self, names: Mapping[str, str], *, tied: bool = False, transposed: frozenset[str] = frozenset()
    ) -> None:
        self.names = dict(names)
        self.tied = tied
        self.transposed = transposed

    def to_hf(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors under their Hugging Face names; of experts, those that this rank holds. Raises KeyError."""
        return dict(pair for name, value in state.items() for pair in self._renamed(name, value))

    def _renamed(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if self.tied and name == HEAD:
            return
        template = re.sub(r"^layers\.\d+", "layers.{}", name)
        layer = name.split(".")[1] if template != name else ""
        theirs = self.names[template]
        if theirs.count("{}") == 2:
            for expert, weight in each_expert(value):
                yield theirs.format(layer, expert), weight
        else:
            yield theirs.format(layer), value.transpose(-2, -1) if template in self.transposed else value

    def kept_exact(self, name: str) -> bool:
        """Whether a checkpoint's tensor keeps its float32 when the rest is rounded: the correction of scores."""
        return name.endswith("e_score_correction_bias")


def each_expert(weights: Any) -> Iterator[tuple[int, Any]]:
    """(number, weight) of the experts of a stack [E, ...] that this rank holds, without communication.

    A weight is a plain tensor, or a DTensor where mesh axes split or repeat it besides the experts' dimension.
    """
    if not isinstance(weights, DTensor):
        yield from enumerate(weights)
        return
    mesh = weights.device_mesh
    rest = [(name, p) for name, p in zip(mesh.mesh_dim_names, weights.placements, strict=True) if not _splits(p, 0)]
    _, offset = compute_local_shape_and_global_offset(weights.shape, mesh, weights.placements)
    shape = weights.shape[1:]
    for row, weight in enumerate(weights._local_tensor):
        if rest:
            weight = DTensor.from_local(
                weight,
                mesh[tuple(name for name, _ in rest)],
                [_one_less(p) for _, p in rest],
                run_check=False,
                shape=shape,
                stride=torch.empty(shape, device="meta").stride(),
            )
        yield offset[0] + row, weight


def _splits(placement: Any, dim: int) -> bool:
    return getattr(placement, "dim", None) == dim


def _one_less(placement: Any) -> Any:
    """The placement on a tensor that lacks the first dimension."""
    if isinstance(placement, _StridedShard):
        return _StridedShard(placement.dim - 1, split_factor=placement.split_factor)
    return Shard(placement.dim - 1) if isinstance(placement, Shard) else placement
