"""The decoder that every family fills: embedding, blocks, norm, head, and where their tensors lie on the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import spmd_types as spmd
from prlc.runtime.trainer import titan
from prlc.runtime.trainer.families.layers import NORMAL, linear, norm


class PolicyModel(titan.Decoder):
    """torchtitan's decoder; the config knows the sharding of each kind of attention.

    Under context parallelism it takes this rank's part of the rows and answers whole rows, so that a caller need
    not know: labels asked of the head are whole as well.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(titan.Decoder.Config):
        """As torchtitan's."""

        def update_from_config(self, *, config: Any, **kwargs: Any) -> None:
            """Fill in shardings; config.parallelism is torchtitan's.

            Its own method besides checks tensor parallelism and dispatchers that are not used here, and for that
            imports its whole trainer: 5 s.
            """
            parallelism = config.parallelism
            flags = {
                "enable_sp": parallelism.enable_sequence_parallel,
                "enable_ep": parallelism.expert_parallel_degree > 1,
            }
            titan.set_decoder_sharding_config(self, enable_sp=flags["enable_sp"])
            for layer in self.layers:
                layer.attention.set_layer_sharding(layer, **flags)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.cp: Any = None

    def parallelize(self, parallel_dims: Any) -> None:
        """Also remember the ranks that share a sequence."""
        super().parallelize(parallel_dims)
        self.cp = parallel_dims.get_optional_mesh("cp")

    def forward(self, tokens: Any, positions: Any = None, attention_masks: Any = None) -> Any:
        """What the head answers, [B, L, ...]: a DTensor of the global batch, or under cp this rank's whole rows."""
        if self.cp is None:
            return super().forward(tokens, positions, attention_masks)
        asked = self.lm_head.asked
        if asked is not None:
            self.lm_head.asked = (titan.sequence_part(asked[0], self.cp), asked[1])
        try:
            part = super().forward(tokens, positions, attention_masks)
        finally:
            self.lm_head.asked = asked
        return titan.gather_sequence(part.to_local(), self.cp)[:, : attention_masks.width]


def decoder(hf: dict[str, Any], layers: list[Any], eps: float) -> PolicyModel.Config:
    """A model of these blocks with the sizes of a Hugging Face config."""
    vocabulary, size = hf["vocab_size"], hf["hidden_size"]
    tied = bool(hf.get("tie_word_embeddings", False))
    return PolicyModel.Config(
        vocab_size=vocabulary,
        dim=size,
        norm=norm(size, eps),
        enable_weight_tying=tied,
        tok_embeddings=titan.Embedding.Config(
            num_embeddings=vocabulary,
            embedding_dim=size,
            param_init={"weight": titan.skip_param_init if tied else NORMAL},
        ),
        lm_head=linear(size, vocabulary),
        layers=layers,
    )


def replicated(*states: str) -> titan.ShardingConfig:
    """Sharding of a module whose states are whole on every rank until FSDP2 splits them."""
    return titan.ShardingConfig(state_shardings={name: titan.dense_param_placement(tp=spmd.R) for name in states})


def sequence_split(attention: Any) -> None:
    """Inner attention on this rank's part of the sequence: the exchange over cp is its own (PackedAttention)."""
    layout = titan.dense_activation_placement(tp=spmd.S(2))
    names = ("q_BLNH", "k_BLNH", "v_BLNH")
    attention.inner_attention.sharding_config = titan.ShardingConfig(
        in_src_shardings=dict.fromkeys(names, layout),
        in_dst_shardings=dict.fromkeys(names, layout),
        out_src_shardings=layout,
        local_map=titan.LocalMapConfig(in_grad_placements=(layout, layout, layout)),
    )
