"""The port ledger."""

import pytest
from prlc.compiler.layout import EngineLayout, Layout, TrainerLayout
from prlc.compiler.ports import ports


def layout(replicas: int = 2) -> Layout:
    trainer = TrainerLayout(
        nodes=(0,),
        ranks_per_node=8,
        dp_replicate=1,
        dp_shard=8,
        cp=1,
        ep=8,
        offload="none",
        activation_checkpoint="full",
        micro_batch_tokens=4096,
    )
    engine = EngineLayout(
        role="engine",
        nodes=tuple(range(1, 1 + replicas)),
        replicas=replicas,
        tp=1,
        dp=8,
        ep=8,
        all2all="allgather_reducescatter",
        max_model_len=4096,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=0.9,
        kv_bytes=1,
        kv_tokens=1,
    )
    return Layout(
        target="slurm",
        nodes=1 + replicas,
        trainer=trainer,
        engines=(engine,),
        orchestrator_node=0,
        router="vllm-router",
        router_node=0,
        store=None,
        router_replay=False,
        max_inflight_groups=1,
    )


def test_no_port_is_given_twice_and_ranges_are_kept_free() -> None:
    uses = ports(layout(), base_port=20000, gpus_per_node=8)
    given: set[int] = set()
    for use in uses:
        wide = set(range(use.port, use.port + (32 if use.purpose == "data_parallel_master" else 1)))
        assert not wide & given
        given |= wide
    assert {u.node for u in uses if u.role == "engine" and u.index >= 8} == {2}


def test_range_end_is_refused() -> None:
    with pytest.raises(ValueError, match="base_port"):
        ports(layout(), base_port=65500, gpus_per_node=8)
