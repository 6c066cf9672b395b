"""Peak memory of this trainer's own step without a GPU: the real model, FSDP2 and recompute under fake tensors.

`python -m benchmarks.memory_fake MODEL LAYERS TOKENS [--world 8] [--ep 1] [--recompute full]` prints one row: bytes
that the second micro-batch of a rank has allocated at its peak, beside the ledger. What fake tensors do not show:
the allocator's gaps, NCCL, kernels' own workspaces. Routing is balanced, attention is fused without a mask.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import weakref
from typing import Any

os.environ["PRLC_TRAINER_DEVICE"] = "cpu"

import torch
import torch.distributed as dist
import torch.nn.functional as F
from prlc import catalog
from prlc.catalog.memory import trainer_memory
from prlc.compiler.layout import TrainerLayout
from prlc.compiler.ledger.trainer import torch_reserved, trainer_ledger
from prlc.runtime.replay.router import swap_routers
from prlc.runtime.trainer import attention, head, titan
from prlc.runtime.trainer.head import swap_head
from prlc.runtime.trainer.model import FAMILIES
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import all_to_all_single
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchtitan.models.common.token_dispatcher import AllToAllDispatchMetadata

GIB = 2**30


class Tracker(TorchDispatchMode):
    """Bytes of live storages, operation by operation; FSDP2 frees by resizing, so that is followed too."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.live = self.peak = 0

    def _change(self, key: int, size: int) -> None:
        self.live += size - self.sizes.pop(key, 0)
        if size:
            self.sizes[key] = size
        self.peak = max(self.peak, self.live)

    def see(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage until it dies."""
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = local.untyped_storage()
        if storage._cdata not in self.sizes:
            self._change(storage._cdata, storage.nbytes())
            weakref.finalize(storage, self._change, storage._cdata, 0).atexit = False

    def __enter__(self) -> Any:
        self.mode, self.resize = active_fake_mode(), torch.UntypedStorage.resize_
        tracker = self

        def resized(storage: Any, size: int) -> Any:
            result = tracker.resize(storage, size)
            if storage._cdata in tracker.sizes or size:
                tracker._change(storage._cdata, size)
            return result

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *details: Any) -> None:
        torch.UntypedStorage.resize_ = self.resize  # type: ignore[method-assign]
        super().__exit__(*details)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        if function is torch.ops._c10d_functional.wait_tensor.default:
            result = args[0]
        else:
            result = function(*args, **(kwargs or {}))
        if active_fake_mode() is self.mode:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
        return result


def _fused(q: Any, k: Any, v: Any, mask: Any, scale: Any, wants_sums: bool) -> tuple[Any, None]:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    width = v.size(-1)
    if width < q.size(-1):
        v = F.pad(v, (0, q.size(-1) - width))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return out[..., :width].transpose(1, 2), None


def _balanced(self: Any, rows: Any, scores: Any, ids: Any, counts: Any) -> Any:
    """AllToAllTokenDispatcher.dispatch with equal splits: fake tensors have no values to split by."""
    rows, token_ids, sorted_scores = self._local_reorder(rows, scores, ids)
    ranks = self.ep_mesh.size() if self.ep_mesh is not None else 1
    split = [rows.size(0) // ranks] * ranks
    received = all_to_all_single(rows, split, split, self.ep_mesh) if ranks > 1 else rows
    order = torch.arange(received.size(0), device=received.device)
    return (
        received[order, :],
        counts.view(ranks, -1).sum(0),
        AllToAllDispatchMetadata(
            token_indices_experts_sorted_N=token_ids,
            topk_scores_experts_sorted_N=sorted_scores,
            input_shape=received.shape,
            permuted_indices=order,
            input_splits=split,
            output_splits=split,
        ),
    )


def _every_token(hidden: Any, weight: Any, labels: Any, temperature: float, chunk: int) -> Any:
    """fused_scores where every token is trained: which are cannot be asked of a fake tensor."""
    scores = head._Scores.apply(hidden.flatten(0, -2), weight, labels.flatten(), temperature, chunk)
    return tuple(part.view(labels.shape) for part in scores)


class _NoMask:
    width = 0

    def mask(self, length: int, window: int = 0) -> None:
        """None: attention here is causal over one document."""


def allocated(name: str, layers: int, tokens: int, world: int, ep: int, recompute: str) -> int:
    """Peak bytes of a rank in its second micro-batch, masters, moments and gradients included."""
    attention.attend = _fused  # type: ignore[assignment]
    head.fused_scores = _every_token
    titan.AllToAllTokenDispatcher.dispatch = _balanced
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    titan.titan_utils.set_spmd_backend(titan.BACKEND)
    model = catalog.model(name)
    hf = {**model.config, "model_type": model.model_type, "vocab_size": model.vocab_size}
    hf |= {"tie_word_embeddings": model.tie_word_embeddings, "num_hidden_layers": layers}
    config, _ = FAMILIES[model.model_type](hf, tokens)
    swap_routers(config)
    swap_head(config)
    parallelism = titan.ParallelismConfig(
        data_parallel_shard_degree=world, expert_parallel_degree=ep, spmd_backend=titan.BACKEND
    )
    training = titan.TrainingConfig(seq_len=tokens, mixed_precision_param="bfloat16", disable_cuda_graphs=True)
    dims = titan.mesh(1, world, 1, ep)
    titan.complete_config(config, parallelism, training)
    with torch.device("meta"):
        module = config.build()
    module = titan.parallelize(module, dims, parallelism, training, recompute)
    for part in module.modules():
        if isinstance(part, titan.FSDPModule):
            part.set_force_sum_reduction_for_comms(True)
    with FakeTensorMode(allow_non_fake_inputs=True):
        module.to_empty(device="cpu")
        module.train()
        moments = [torch.zeros_like(p) for p in module.parameters() for _ in range(2)]
        ids, places = torch.randint(0, 1000, (1, tokens)), torch.arange(tokens)[None]
        tracker = Tracker()
        for tensor in (*module.parameters(), *module.buffers(), *moments):
            tracker.see(tensor.data)
        for _ in range(2):
            with tracker:
                tracker.peak = 0
                inputs, extra = titan.place_inputs(dims, ids, {"positions": places, "attention_masks": _NoMask()})
                with head.asking(module, ids, 1.0):
                    scores = module(inputs, **extra)
                    scores = scores.to_local() if isinstance(scores, DTensor) else scores
                    scores[..., 0].sum().backward()
                del scores
    return tracker.peak


def predicted(name: str, layers: int, tokens: int, world: int, ep: int, recompute: str) -> int:
    """The ledger of the same rank with balanced routing, what torch allocates alone."""
    model = catalog.model(name)
    facts = catalog.facts(dataclasses.replace(model, config={**model.config, "num_hidden_layers": layers}))
    layout = TrainerLayout(
        nodes=tuple(range(max(1, world // 8))),
        ranks_per_node=min(8, world),
        dp_replicate=1,
        dp_shard=world,
        cp=1,
        ep=ep,
        offload="none",
        activation_checkpoint=recompute,  # type: ignore[arg-type]
        micro_batch_tokens=tokens,
    )
    balanced = dataclasses.replace(trainer_memory(), imbalance=1.0)
    return torch_reserved(trainer_ledger(facts, catalog.gpu("h200"), layout, "bf16", tokens, numbers=balanced))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("layers", type=int)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--world", type=int, default=8)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="full")
    a = parser.parse_args()
    asked = (a.model, a.layers, a.tokens, a.world, a.ep, a.recompute)
    seen, said = allocated(*asked) / GIB, predicted(*asked) / GIB
    print(f"| {' | '.join(map(str, asked))} | {seen:.2f} | {said:.2f} | {said - seen:+.2f} |")


if __name__ == "__main__":
    main()
