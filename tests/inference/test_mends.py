"""Each mend: it does what it says, and vLLM still has the fault that it is for.

A failure of a `test_fault_*` after a change of vLLM means: judge that mend anew, it may have to go.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prlc.runtime.inference import mends
from prlc.runtime.inference.mends import (
    expert_parallel,
    mla_prefix_cache,
    moe_reload,
    sigmoid_router,
    triton_interpreter,
    v2_batch,
    v2_kernels,
    v2_sampling,
)

pytestmark = pytest.mark.runtime


def source(function: Any) -> str:
    """Source of vLLM's own function, under a mend if there is one."""
    return inspect.getsource(inspect.unwrap(function))


def test_other_versions_are_refused() -> None:
    mends.require_version("0.32.0+cpu")
    with pytest.raises(mends.MendError, match=r"0\.32\.0"):
        mends.require_version("0.33.0")


def test_fault_moe_reload() -> None:
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

    text = source(UnquantizedFusedMoEMethod._setup_kernel)
    assert text.count("process_weights_after_loading(layer)") == 1
    guard = text.index("if not is_weight_update:")
    assert text.index("process_weights_after_loading(layer)") > guard


def test_moe_reload_prepacks_on_updates_only() -> None:
    packed: list[Any] = []
    kernel = SimpleNamespace(fused_experts=SimpleNamespace(process_weights_after_loading=packed.append))
    method = SimpleNamespace(moe_kernel=None)

    def stock(self: Any, layer: Any, w13: Any, w2: Any) -> None:
        self.moe_kernel = kernel

    mended = moe_reload.mended(stock)
    mended(method, "layer", None, None)
    assert packed == []
    mended(method, "layer", None, None)
    assert packed == ["layer"]


def test_fault_sigmoid_router() -> None:
    from vllm.model_executor.layers.fused_moe.router.cpu_router import CPURouter

    assert 'assert self.scoring_func == "softmax"' in source(CPURouter._compute_routing)


def test_sigmoid_router_by_hand() -> None:
    import torch
    from vllm.model_executor.layers.fused_moe.router import cpu_router

    torch.manual_seed(0)
    logits, bias = torch.randn(6, 8), torch.randn(8)
    router = SimpleNamespace(
        use_grouped_topk=False,
        custom_routing_function=None,
        scoring_func="sigmoid",
        top_k=3,
        renormalize=True,
        routed_scaling_factor=1.0,
        e_score_correction_bias=bias,
    )
    mended = sigmoid_router.mended(cpu_router.CPURouter._compute_routing, cpu_router._grouped_topk)
    weights, ids = mended(router, torch.zeros(6, 4), logits, None)
    scores = logits.sigmoid()
    expected = (scores + bias).topk(3, -1).indices.sort(-1).values
    order = ids.long().sort(-1)
    assert torch.equal(order.values, expected)
    chosen = scores.gather(1, expected)
    torch.testing.assert_close(weights.gather(1, order.indices), chosen / chosen.sum(-1, keepdim=True))


def test_fault_expert_parallel() -> None:
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    for name, ours in (
        ("all_gatherv", expert_parallel._all_gatherv),
        ("reduce_scatterv", expert_parallel._reduce_scatterv),
    ):
        assert vars(CpuCommunicator).get(name, ours) is ours
    body = source(CPUUnquantizedExperts.apply).split(") -> None:", 1)[1]
    assert "expert_map" not in body


def test_local_share_drops_experts_of_others() -> None:
    import torch

    expert_map = torch.tensor([-1, -1, 0, 1])
    weights, ids = expert_parallel.local_share(
        torch.tensor([[0.5, 0.25, 0.125]]), torch.tensor([[0, 2, 3]], dtype=torch.int32), expert_map
    )
    assert weights.tolist() == [[0.0, 0.25, 0.125]]
    assert ids.tolist() == [[0, 0, 1]]


def test_fault_mla_prefix_cache() -> None:
    from vllm.platforms.cpu import CpuPlatform

    text = source(CpuPlatform.check_and_update_config.__func__)
    assert "vllm_config.cache_config.enable_prefix_caching = False" in text


def test_mla_prefix_cache_is_put_back() -> None:
    def stock(cls: Any, config: Any) -> None:
        config.cache_config.enable_prefix_caching = False

    config = SimpleNamespace(cache_config=SimpleNamespace(enable_prefix_caching=True))
    mla_prefix_cache.mended(stock)(object, config)
    assert config.cache_config.enable_prefix_caching


def test_fault_triton_has_no_cpu_backend() -> None:
    import importlib.metadata

    assert "cpu" not in {entry.name for entry in importlib.metadata.entry_points(group="triton.backends")}


def test_interpreter_needs_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(mends.MendError, match="TRITON_INTERPRET"):
        triton_interpreter.apply()


STAND_INS = [
    ("sample.gumbel", "_gumbel_sample_kernel", v2_sampling.gumbel_sample),
    ("sample.logprob", "_topk_log_softmax_kernel", v2_sampling.log_softmax),
    ("sample.logprob", "_ranks_kernel", v2_sampling.ranks),
    ("input_batch", "_prepare_pos_seq_lens_kernel", v2_batch.positions_and_lengths),
    ("input_batch", "_combine_sampled_and_draft_tokens_kernel", v2_batch.combine_sampled),
    ("input_batch", "_get_num_sampled_and_rejected_kernel", v2_batch.sampled_and_rejected),
    ("input_batch", "_post_update_kernel", v2_batch.post_update),
]


@pytest.mark.parametrize(("module", "kernel", "ours"), STAND_INS, ids=[name for _, name, _ in STAND_INS])
def test_fault_kernels_count_their_arguments_as_the_stand_ins(module: str, kernel: str, ours: Any) -> None:
    """A stand-in is called with its kernel's arguments: by position, and the constants by name."""
    import ast
    import importlib.util

    spec = importlib.util.find_spec(f"vllm.v1.worker.gpu.{module}")
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == kernel)
    parameters = list(inspect.signature(ours).parameters)[1:]
    launched = [name for name in parameters if name != "num_warps"]
    assert len(found.args.args) == len(launched)
    constants = [arg.arg for arg in found.args.args if arg.arg.isupper()]
    assert [name for name in launched if name.isupper()] == constants


def test_stand_in_hands_unknown_cases_to_the_kernel() -> None:
    asked: list[Any] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **kwargs: asked.append((grid, args, kwargs))

    launch = v2_kernels.StandIn(lambda grid, x, *, known: None if known else NotImplemented, Kernel())
    launch[(2,)](1, known=True)
    assert asked == []
    launch[(2,)](1, known=False)
    assert asked == [((2,), (1,), {"known": False})]


def draws(temperature: float, count: int) -> Any:
    """Tokens of `count` rows of the same four logits, one position each."""
    import torch

    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0]]).repeat(count, 1)
    index, best = torch.zeros(count, 1, dtype=torch.long), torch.zeros(count, 1)
    rows = torch.zeros(count, dtype=torch.int32)
    v2_sampling.gumbel_sample(
        (count, 1), index, 1, best, 1, None, 0, 0, None, None, 0, logits, 4, rows, torch.tensor([7]),
        torch.arange(count), torch.tensor([temperature]), 4, 1024, False, True, False, False,
    )  # fmt: skip
    return logits[0], index[:, 0].numpy()


def test_sampling_is_greedy_at_temperature_0() -> None:
    assert set(draws(0.0, 5)[1].tolist()) == {3}


def test_sampling_follows_the_softmax() -> None:
    """Chi-square with 3 degrees of freedom; the seed is fixed, so the value is: 16.3 is the 0.1 % point."""
    count = 4000
    logits, tokens = draws(0.5, count)
    expected = (logits / 0.5).softmax(-1).numpy() * count
    seen = np.bincount(tokens, minlength=4)
    assert float(((seen - expected) ** 2 / expected).sum()) < 16.3
