"""Launch inputs of two runs: one engine on a CPU, and prefill and decode apart on H200 nodes with a store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prlc.compiler.layout import EngineLayout, LaunchInputs, Layout, PortUse, StoreLayout, TrainerLayout
from prlc.schema.hardware import Node
from prlc.schema.topology import Endpoint, Role, Topology


def _inputs(layout: Layout, topology: Topology, model: str, device: str, precision: str, cpus: int) -> LaunchInputs:
    nics = tuple(f"mlx5_{gpu}" for gpu in range(8)) if device == "cuda" else ()
    node = Node(
        gpu=device, gpus=8 if device == "cuda" else 2, cpus=cpus, memory=2**40, intra_bandwidth=1e9,
        inter_bandwidth=1e9, nics=nics, gid_index=3 if nics else None, interface="eth0" if nics else None,
    )  # fmt: skip
    parts: dict[str, Any] = {
        "spec": SimpleNamespace(inference=SimpleNamespace(precision=precision), seed=7),
        "model": SimpleNamespace(checkpoints=()),
        "facts": None,
        "gpu": SimpleNamespace(device=device),
        "cluster": SimpleNamespace(node=node),
        "trainer": SimpleNamespace(model=model),
        "orchestrator": None,
    }
    return LaunchInputs(layout=layout, topology=topology, **parts)


def _trainer(nodes: tuple[int, ...], ranks: int) -> TrainerLayout:
    return TrainerLayout(
        nodes=nodes, ranks_per_node=ranks, dp_replicate=1, dp_shard=ranks * len(nodes), cp=1, ep=ranks,
        offload="none", activation_checkpoint="full", micro_batch_tokens=4096,
    )  # fmt: skip


def cpu(model: str, *, dp: int = 1) -> LaunchInputs:
    """Engines and trainer on one CPU node, routed experts returned."""
    engine = EngineLayout(
        role="engine", nodes=(0,), replicas=1, tp=1, dp=dp, ep=dp, all2all="allgather_reducescatter",
        max_model_len=512, max_num_seqs=16, max_num_batched_tokens=1024, gpu_memory_utilization=0.0,
        kv_bytes=2**30, kv_tokens=10000,
    )  # fmt: skip
    ports = [PortUse(node=0, port=20000, role="trainer", index=0, purpose="rendezvous")]
    ports += [PortUse(node=0, port=20010 + i, role="engine", index=i, purpose="http") for i in range(dp)]
    ports += [
        PortUse(node=0, port=20100, role="engine", index=0, purpose="data_parallel_rpc"),
        PortUse(node=0, port=20200, role="engine", index=0, purpose="data_parallel_master"),
    ]
    layout = Layout(
        target="local", nodes=1, trainer=_trainer((0,), 2), engines=(engine,), orchestrator_node=0,
        router="direct", router_node=0, store=None, router_replay=True, max_inflight_groups=4,
        ports=tuple(ports),
    )  # fmt: skip
    endpoints = tuple(Endpoint(index=i, node=0, port=20010 + i, data_parallel_rank=i) for i in range(dp))
    one = (Endpoint(index=0, node=0, port=0),)
    topology = Topology(
        run="cpu", nodes=1,
        roles=(
            Role(name="engine", kind="engine", endpoints=endpoints, ready="health", finishes=False),
            Role(name="orchestrator", kind="orchestrator", endpoints=one, ready="none", finishes=True),
            Role(name="trainer", kind="trainer", endpoints=one, ready="none", finishes=True),
        ),
    )  # fmt: skip
    return _inputs(layout, topology, model, "cpu", "fp32", 2)


def h200(model: str, *, store: bool = True, replay: bool = True) -> LaunchInputs:
    """One prefill node (8 x tp 1, dp 8), two decode nodes (dp 16), one trainer node, router and store."""
    common: dict[str, Any] = {
        "replicas": 1, "tp": 1, "max_model_len": 4096, "gpu_memory_utilization": 0.9,
        "kv_bytes": 2**35, "kv_tokens": 10**6,
    }  # fmt: skip
    prefill = EngineLayout(
        role="prefill", nodes=(0,), dp=8, ep=8, all2all="deepep_high_throughput", max_num_seqs=64,
        max_num_batched_tokens=8192, **common,
    )  # fmt: skip
    decode = EngineLayout(
        role="decode", nodes=(1, 2), dp=16, ep=16, all2all="deepep_low_latency", max_num_seqs=128,
        max_num_batched_tokens=256, **common,
    )  # fmt: skip
    ports = [
        PortUse(node=3, port=20000, role="trainer", index=0, purpose="rendezvous"),
        PortUse(node=3, port=20001, role="router", index=0, purpose="http"),
        PortUse(node=3, port=20002, role="router", index=0, purpose="metrics"),
        PortUse(node=3, port=20003, role="store", index=0, purpose="rpc"),
        PortUse(node=3, port=20004, role="store", index=0, purpose="metrics"),
    ]
    roles = []
    for engine in (prefill, decode):
        endpoints = tuple(
            Endpoint(index=i, node=engine.nodes[i // 8], port=20010 + i % 8, devices=(i % 8,), data_parallel_rank=i)
            for i in range(engine.dp)
        )
        ports += [
            PortUse(node=e.node, port=20050 + e.index % 8, role=engine.role, index=e.index, purpose="side_channel")
            for e in endpoints
        ]
        ports += [
            PortUse(node=engine.nodes[0], port=20100, role=engine.role, index=0, purpose="data_parallel_rpc"),
            PortUse(node=engine.nodes[0], port=20200, role=engine.role, index=0, purpose="data_parallel_master"),
        ]
        roles.append(Role(name=engine.role, kind=engine.role, endpoints=endpoints, ready="health", finishes=False))
    last = (Endpoint(index=0, node=3, port=0),)
    roles += [
        Role(name="router", kind="router", endpoints=last, ready="none", finishes=False),
        Role(name="orchestrator", kind="orchestrator", endpoints=last, ready="none", finishes=True),
        Role(name="trainer", kind="trainer", endpoints=last, ready="none", finishes=True),
    ]
    if store:
        roles.insert(0, Role(name="store", kind="store", endpoints=last, ready="none", finishes=False))
    layout = Layout(
        target="slurm", nodes=4, trainer=_trainer((3,), 8), engines=(prefill, decode), orchestrator_node=3,
        router="vllm-router", router_node=3, router_replay=replay, max_inflight_groups=64,
        store=StoreLayout(master_node=3, nodes=(0, 1, 2), segment_bytes=2**40) if store else None,
        ports=tuple(ports),
    )  # fmt: skip
    return _inputs(layout, Topology(run="h200", nodes=4, roles=tuple(roles)), model, "cuda", "fp8", 128)
