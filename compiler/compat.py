"""Which features of catalog/compat.yaml a plan has, and what the table says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.catalog.compat import applies, compat

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.compat import Pair

MANY = 256  # experts that fit in uint8


def active(resolved: Resolved, layout: Layout) -> frozenset[str]:
    """Names of the features that a layout has."""
    spec, facts, gpu = resolved.spec, resolved.facts, resolved.gpu
    engines, mesh = layout.engines, layout.trainer
    apart = len(engines) > 1
    major = int((gpu.compute_capability or "0").split(".")[0])
    cuda = gpu.device == "cuda"
    found = {
        "router_replay": layout.router_replay,
        "disaggregate": apart,
        "together": not apart,
        "kv_store": layout.store is not None,
        "kv_point_to_point": apart and layout.store is None,
        "router_vllm": layout.router == "vllm-router",
        "router_direct": layout.router == "direct",
        "engine_experts": any(e.expert_parallel for e in engines),
        "engine_tensor_parallel": any(e.tp > 1 for e in engines),
        "deepep_high_throughput": any(e.all2all == "deepep_high_throughput" for e in engines),
        "deepep_low_latency": any(e.all2all == "deepep_low_latency" for e in engines),
        "engine_fp8": spec.inference.precision == "fp8",
        "engine_fp32": spec.inference.precision == "fp32",
        "trainer_fp8": spec.trainer.precision == "fp8",
        "trainer_fp32": spec.trainer.precision == "fp32",
        "trainer_experts": mesh.ep > 1,
        "context_parallel": mesh.cp > 1,
        "optimizer_offload": mesh.offload == "cpu",
        "several_nodes": layout.nodes > 1,
        "slurm": layout.target == "slurm",
        "local": layout.target == "local",
        "cpu": not cuda,
        "cuda": cuda,
        "sm90": cuda and major == 9,
        "sm100": cuda and major == 10,
        "fp8_kernels": cuda and major >= 9,
        "moe": facts.num_experts > 0,
        "many_experts": facts.num_experts > MANY,
        "mla": facts.attention_kind == "mla",
        "dsa": facts.attention_kind == "dsa",
        "sliding": facts.attention_kind == "sliding",
        "hybrid_mamba2": facts.attention_kind == "hybrid_mamba2",
        "hybrid_gated_deltanet": facts.attention_kind == "hybrid_gated_deltanet",
        "gpt_oss": resolved.model.model_type == "gpt_oss",
        "vision": resolved.model.vision_params > 0,
        "mtp": facts.mtp_params > 0,
        "index_topk_64": facts.index_topk is not None and facts.index_topk % 64 == 0,
    }
    return frozenset(name for name, there in found.items() if there)


def speaking(resolved: Resolved, layout: Layout) -> tuple[tuple[Pair, tuple[str, ...]], ...]:
    """Rows of the table that the plan meets, each with the needs that it lacks."""
    table, have = compat(), active(resolved, layout)
    return tuple(
        (row, tuple(name for name in row.needs if name not in have))
        for row in table.rows
        if set(row.features) <= have and applies(row, table.stack)
    )


def path_of(row: Pair, resolved: Resolved) -> tuple[str, ...]:
    """The key of the spec to point at: of the row's features the one that the spec says most exactly."""
    paths = {f.name: tuple(f.path.split(".")) for f in compat().features if f.path}
    wanted = [paths[name] for name in row.features if name in paths]
    said = [path for path in wanted if resolved.said(*path)]
    return max(said, key=len, default=("cluster",))
