"""Router replay: torchtitan's router, made to send each token to the experts that the engine chose.

The gate stays in the gradient: recorded ids pick which of its scores weigh the experts. An id of -1 means
"not recorded" and is routed naturally. Ids of one token must differ: torchtitan counts tokens by one-hot map,
and a doubled id would leave rows of the grouped product unwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from prlc.runtime.trainer.titan import TokenChoiceTopKRouter, sequence_part
from torch.distributed.tensor import DTensor


class ReplayRouter(TokenChoiceTopKRouter):
    """Natural routing until `replay_ids` is set (this rank's [B, L, top_k], int64)."""

    @dataclass(kw_only=True, slots=True)
    class Config(TokenChoiceTopKRouter.Config):
        """As the router it replaces."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.replay_ids: torch.Tensor | None = None
        self.incomplete = True  # some of replay_ids are -1
        self.recorded: list[torch.Tensor] | None = None
        self.cp: Any = None

    def parallelize(self, parallel_dims: Any) -> None:
        """Also remember the ranks that share a sequence."""
        super().parallelize(parallel_dims)
        self.cp = parallel_dims.get_optional_mesh("cp")

    def forward(self, x_BLD: Any, expert_bias_E: Any = None) -> Any:
        """Scores and ids of the chosen experts, and all scores."""
        if self.replay_ids is None:
            out = super().forward(x_BLD, expert_bias_E)
            if self.recorded is not None:
                chosen = out[1].detach()
                self.recorded.append((chosen.to_local() if isinstance(chosen, DTensor) else chosen).clone())
            return out
        with torch.autocast(x_BLD.device.type, dtype=torch.float32, enabled=x_BLD.device.type == "cuda"):
            logits = self.gate(x_BLD)
        logits = logits.float()
        scores = torch.sigmoid(logits) if self.score_func == "sigmoid" else F.softmax(logits, dim=-1)
        ids: Any = self.replay_ids
        if isinstance(scores, DTensor):
            ids = DTensor.from_local(ids, scores.device_mesh, scores.placements, run_check=False)
        if self.incomplete:
            with torch.no_grad():
                choice = scores if expert_bias_E is None else scores + expert_bias_E
                if self.num_expert_groups is not None:
                    choice = self._get_node_limited_routing_scores(choice)
                natural = torch.topk(choice, k=self.top_k, dim=-1, sorted=False)[1]
                local = natural.to_local() if isinstance(natural, DTensor) else natural
                merged = torch.where(self.replay_ids < 0, local, self.replay_ids)
                ids = (
                    DTensor.from_local(merged, scores.device_mesh, scores.placements, run_check=False)
                    if isinstance(scores, DTensor)
                    else merged
                )
        top = scores.gather(dim=-1, index=ids)
        if self.route_norm:
            top = top / (top.sum(dim=-1, keepdim=True) + 1e-20)
        return top * self.route_scale, ids, scores


def swap_routers(config: Any) -> int:
    """Put replay routers into a model config that is not built yet; how many."""
    count = 0
    for _name, old, parent, attribute in list(config.traverse(TokenChoiceTopKRouter.Config)):
        new = ReplayRouter.Config(**{f.name: getattr(old, f.name) for f in fields(old)})
        if isinstance(parent, list):
            parent[attribute] = new
        else:
            setattr(parent, attribute, new)
        count += 1
    return count


def routers(model: Any) -> list[ReplayRouter]:
    """The model's replay routers, in layer order."""
    return [module for module in model.modules() if isinstance(module, ReplayRouter)]


@contextmanager
def replaying(model: Any, ids: Sequence[torch.Tensor] | None) -> Iterator[None]:
    """Replay ids until the block ends, backward included: one tensor a router, [B, L, top_k] of whole rows.

    None: no replay.
    """
    found = routers(model)
    if ids is not None and len(ids) != len(found):
        raise ValueError(f"{len(ids)} recorded layers for {len(found)} routers")
    layers: list[Any] = [None] * len(found) if ids is None else list(ids)
    if ids is not None and found and found[0].cp is not None:
        layers = [sequence_part(layer, found[0].cp, fill=-1) for layer in layers]
    # asked once for all layers: each answer waits for the device
    incomplete = bool(torch.stack([(layer < 0).any() for layer in layers]).any()) if ids else False
    for router, layer in zip(found, layers, strict=True):
        router.replay_ids, router.incomplete = layer, incomplete
    try:
        yield
    finally:
        for router in found:
            router.replay_ids = None


@contextmanager
def recording(model: Any) -> Iterator[list[list[torch.Tensor]]]:
    """Collect the natural routing of every pass in the block: one list a router, one tensor a pass."""
    found = routers(model)
    for router in found:
        router.recorded = []
    try:
        yield [router.recorded for router in found if router.recorded is not None]
    finally:
        for router in found:
            router.recorded = None
