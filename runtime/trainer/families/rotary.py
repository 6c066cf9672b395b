"""Rotary position embedding with the scalings, partial widths and pair layouts that Hugging Face configs ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from prlc.runtime.trainer import titan


class Rotary(titan.CosSinRoPE):
    """Rotates the first `dim` features of queries and keys, leaves the rest.

    Frequencies and the factor on cos and sin follow transformers' modeling_rope_utils (linear, llama3, yarn).
    """

    @dataclass(kw_only=True, slots=True)
    class Config(titan.CosSinRoPE.Config):
        """`kind`: default, linear, llama3 or yarn; `interleaved`: pairs are neighbours, not halves."""

        kind: str = "default"
        interleaved: bool = False
        factor: float = 1.0
        amplitude: float = 1.0

    def _inverse_frequencies(self) -> torch.Tensor:
        config: Any = self.config
        plain = 1.0 / (config.theta ** (torch.arange(0, config.dim, 2).float() / config.dim))
        if config.kind == "linear":
            return plain / config.factor
        if config.kind == "yarn":
            return titan.yarn_frequencies(
                config.dim,
                config.theta,
                config.factor,
                config.beta_fast,
                config.beta_slow,
                config.original_seq_len,
                config.truncate,
            )
        if config.kind == "llama3":
            turns = config.original_seq_len * plain / (2 * math.pi)  # rotations over the original context
            share = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
            share = share.clamp(0.0, 1.0)
            return (1 - share) * plain / config.factor + share * plain
        return plain

    def _precompute_cache(self) -> torch.Tensor:
        """[dim / 2]: angles a position adds. torchtitan's own cache of cos and sin would be 64 MiB a layer at 128k."""
        return self._inverse_frequencies()

    def forward(self, query: Any, key: Any, positions: Any = None) -> Any:
        """query, key [B, L, heads, size >= dim], positions [B, L]; interleaved pairs come out as halves."""
        angles = positions.float()[:, :, None, None] * self.cache
        cos, sin = angles.cos() * self.config.amplitude, angles.sin() * self.config.amplitude
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        dim = self.config.dim
        turned = x[..., :dim].float()
        if self.config.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
        else:
            a, b = turned[..., : dim // 2], turned[..., dim // 2 :]
        out = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).type_as(x)
        return out if x.size(-1) == dim else torch.cat([out, x[..., dim:]], -1)


def rotary(hf: dict[str, Any], dim: int, length: int, interleaved: bool = False) -> Rotary.Config:
    """Of a Hugging Face config; `dim`: rotated features of a head, `length`: positions."""
    scaling = parameters(hf)
    kind = scaling["rope_type"]
    factor = float(scaling.get("factor") or 1.0)
    return Rotary.Config(
        dim=dim,
        max_seq_len=length,
        theta=float(scaling["rope_theta"]),
        kind=kind,
        interleaved=interleaved,
        factor=factor,
        amplitude=_amplitude(scaling, factor) if kind == "yarn" else 1.0,
        low_freq_factor=float(scaling.get("low_freq_factor", 1.0)),
        high_freq_factor=float(scaling.get("high_freq_factor", 4.0)),
        original_seq_len=int(scaling.get("original_max_position_embeddings") or hf["max_position_embeddings"]),
        beta_fast=float(scaling.get("beta_fast") or 32),
        beta_slow=float(scaling.get("beta_slow") or 1),
        truncate=bool(scaling.get("truncate", True)),
    )


def parameters(hf: dict[str, Any]) -> dict[str, Any]:
    """rope_parameters as transformers 5 writes them, from rope_theta and rope_scaling where a config is older."""
    found = dict(hf.get("rope_parameters") or hf.get("rope_scaling") or {})
    found["rope_type"] = found.get("rope_type") or found.get("type") or "default"
    found.setdefault("rope_theta", hf.get("rope_theta", 10000.0))
    return found


def yarn_scale(factor: float, mscale: float) -> float:
    """YaRN's attention scale, 0.1 m ln(s) + 1 (arXiv 2309.00071, section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _amplitude(scaling: dict[str, Any], factor: float) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and all_dim:
        return yarn_scale(factor, mscale) / yarn_scale(factor, all_dim)
    return yarn_scale(factor, 1.0)
