"""Muon for the matrices of a sharded model, AdamW for everything else, in one optimizer.

torch.optim.Muon takes 2-D parameters alone, which leaves out routed experts, and on sharded ones its bfloat16
products depend on how they are sharded. Here a matrix is gathered once, treated whole on every rank, and each rank
applies its own part: all layouts get the same update. Experts that lie whole on a rank are not gathered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.optim.adamw import adamw

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic, and 5 steps of it: kellerjordan.github.io/posts/muon
STEPS = 5
RMS = 0.2  # of an AdamW update, so that lr and weight decay mean the same for both: arXiv 2502.16982, eq. 4


def is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """True for hidden matrices and stacks of expert matrices; embeddings, the head and vectors go to AdamW."""
    if parameter.ndim == 3:
        return ".inner_experts." in name
    return parameter.ndim == 2 and not name.startswith(("tok_embeddings.", "lm_head."))


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz of [..., m, n] in bfloat16: singular values pushed to about 1 (0.5 to 1.5), float32.

    Source: Jordan et al., kellerjordan.github.io/posts/muon; of torch.optim.Muon the same numbers.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.size(-2) > matrices.size(-1)
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """`matrices` by Muon, `others` by AdamW; lr and weight decay as for AdamW.

    Source: arXiv 2502.16982, algorithm of section 2 with Nesterov momentum; update scaled by 0.2 sqrt(max(m, n)).
    """

    def __init__(
        self,
        matrices: Iterable[torch.Tensor],
        others: Iterable[torch.Tensor],
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        shared = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps}
        super().__init__([{"params": list(matrices), "muon": True}, {"params": list(others), "muon": False}], shared)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Apply one update. A parameter without gradient is left alone."""
        if closure is not None:
            raise ValueError("a closure is not supported")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["muon"]:
                for parameter in parameters:
                    self._turn(parameter, group["lr"], group["weight_decay"])
            elif parameters:
                self._adamw(parameters, group)

    def _turn(self, parameter: torch.Tensor, lr: float, decay: float) -> None:
        """Muon's update of one parameter."""
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"]
        momentum.lerp_(parameter.grad, 1 - MOMENTUM)
        update = _orthogonalised_shards(parameter.grad.lerp(momentum, MOMENTUM))
        parameter.mul_(1 - lr * decay)
        parameter.add_(update, alpha=-lr * RMS * max(parameter.shape[-2:]) ** 0.5)

    def _adamw(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        """AdamW, one tensor at a time, since parameters may lie on several meshes."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            parameters,
            [parameter.grad for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _orthogonalised_shards(update: torch.Tensor) -> torch.Tensor:
    """`orthogonalised`, of a sharded update too: the result lies as the update does."""
    if not isinstance(update, DTensor):
        return orthogonalised(update)
    split = {getattr(place, "dim", None) for place in update.placements if not place.is_replicate()}
    if update.ndim == 3 and split <= {0}:  # whole experts: nothing to gather
        local = orthogonalised(update.to_local())
        return DTensor.from_local(
            local, update.device_mesh, update.placements, run_check=False, shape=update.shape, stride=update.stride()
        )
    mesh = update.device_mesh
    whole = orthogonalised(update.bfloat16().redistribute(placements=[Replicate()] * mesh.ndim).to_local())
    return distribute_tensor(whole, mesh, update.placements, src_data_rank=None)
