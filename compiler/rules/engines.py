"""What engine servers, the router and the KV store need of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import of_cluster
from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

# one vllm-router stalled at about 1,270 concurrent streams (PrimeIntellect-ai/prime-rl#3211)
ROUTER_STREAMS = 1200
CONTROLLED_GPUS = 512
LARGEST_PORT = 65535
FIRST_EPHEMERAL_PORT = 32768  # Linux' default net.ipv4.ip_local_port_range


@layout_rule(
    "PRL507",
    refused={"roles": ("prefill", "decode"), "engines": ({"tp": 4, "replicas": 1}, {"tp": 2, "replicas": 2})},
    accepted={"roles": ("prefill", "decode"), "engines": ({"tp": 2, "replicas": 2}, {"tp": 4, "replicas": 1})},
)
def prefill_no_wider_than_decode(
    resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]
) -> Iterator[Diagnostic]:
    """Prefill has no more tensor-parallel ranks than decode.

    Inequality: tp of prefill <= tp of decode
    Source: vllm-project/vllm#43523: a KV transfer from a wider prefill ends in a KeyError.
    Cure: tensor_parallel: auto, or one degree for both.
    """
    sides = {engine.role: engine for engine in layout.engines}
    if "prefill" in sides and sides["prefill"].tp > sides["decode"].tp:
        wide, narrow = sides["prefill"].tp, sides["decode"].tp
        yield finding(
            "PRL507",
            f"prefill is cut over {wide} GPUs and decode over {narrow}: the KV transfer fails",
            resolved.span(("inference", "tensor_parallel")) or resolved.span(("cluster",)),
            label=f"{wide} > {narrow}",
            rule="tp of prefill <= tp of decode",
            help="tensor_parallel: auto",
        )


@layout_rule(
    "PRL508",
    refused={
        "spec": {"model": "qwen3-next-80b-a3b", "algorithm": {"router_replay": False}},
        "layout": {"store": None, "router_replay": False},
        "roles": ("prefill", "decode"),
        "engines": ({"tp": 2}, {"tp": 4}),
    },
    accepted={
        "spec": {"model": "qwen3-next-80b-a3b", "algorithm": {"router_replay": False}},
        "layout": {"store": None, "router_replay": False},
        "roles": ("prefill", "decode"),
    },
)
def hybrid_sides_are_alike(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """A hybrid model has the same tensor parallelism for prefill and decode.

    Inequality: tp of prefill == tp of decode, for models with linear layers
    Source: vllm-project/vllm#42895, #41037, #45575, #50714: block sizes of hybrid models depend on tp, and NIXL
    refuses or misreads blocks of another size.
    Cure: a fixed tensor_parallel, or disaggregate: false.
    """
    sides = {engine.role: engine for engine in layout.engines}
    if "prefill" not in sides or not resolved.facts.linear_layers:
        return
    if sides["prefill"].tp != sides["decode"].tp:
        yield finding(
            "PRL508",
            f"{resolved.model.name} has linear layers: prefill (tp {sides['prefill'].tp}) and decode "
            f"(tp {sides['decode'].tp}) would have KV blocks of different sizes",
            resolved.span(("inference", "disaggregate")) or resolved.span(("model",)),
            rule="tp of prefill == tp of decode for hybrid models",
            help=f"tensor_parallel: {sides['decode'].tp}",
        )


@layout_rule(
    "PRL509",
    refused={"engine": {"nodes": (0, 1), "replicas": 1, "tp": 1, "dp": 3, "ep": 3}},
    accepted={"engine": {"nodes": (0, 1), "replicas": 2, "tp": 4, "dp": 1, "ep": 1}},
)
def servers_share_nodes_evenly(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Engine servers are spread evenly over their nodes and fit in each.

    Inequality: servers % nodes == 0 and servers / nodes x tp <= gpus_per_node
    Source: a server does not span nodes; launchers that divide and round down leave GPUs idle or wait for servers
    that were never started.
    Cure: data_parallel and tensor_parallel: auto.
    """
    gpus = resolved.cluster.node.gpus
    for engine in layout.engines:
        nodes, servers = len(engine.nodes), engine.servers
        if servers % nodes or servers // nodes * engine.tp > max(1, gpus):
            yield finding(
                "PRL509",
                f"{servers} servers of {engine.tp} GPUs do not share {nodes} nodes of {gpus} GPUs evenly",
                resolved.span(("inference", "data_parallel")) or resolved.span(("cluster",)),
                label=f"{servers} % {nodes} = {servers % nodes}",
                rule="servers % nodes == 0 and servers / nodes * tp <= gpus_per_node",
                help="data_parallel: auto, tensor_parallel: auto",
            )


@layout_rule(
    "PRL510",
    refused={
        "spec": {"model": "deepseek-v3", "cluster": "local-cpu"},
        "engine": {"max_num_batched_tokens": 2048},
    },
    accepted={
        "spec": {"model": "deepseek-v3", "cluster": "local-cpu"},
        "engine": {"max_num_batched_tokens": 16384},
    },
)
def whole_prompt_in_a_step(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Where chunked prefill is off, one step holds the longest sample.

    Inequality: max_num_batched_tokens >= max_model_len, for latent attention on a CPU
    Source: vLLM 0.32's CPU build turns chunked prefill off for MLA and then refuses a smaller step.
    Cure: a shorter sequence.seq_len; prlc sets the step to it.
    """
    if resolved.gpu.device != "cpu" or resolved.facts.attention_kind not in ("mla", "dsa"):
        return
    for engine in layout.engines:
        if engine.max_num_batched_tokens < engine.max_model_len:
            yield finding(
                "PRL510",
                f"without chunked prefill a step of {engine.max_num_batched_tokens} tokens holds no sample",
                resolved.span(("sequence", "seq_len")),
                label=f"{engine.max_num_batched_tokens} < {engine.max_model_len}",
                rule="max_num_batched_tokens >= max_model_len",
                help=f"seq_len: {engine.max_num_batched_tokens}",
            )


@layout_rule(
    "PRL514",
    refused={"layout": {"max_inflight_groups": 400, "router": "vllm-router"}},
    accepted={"layout": {"max_inflight_groups": 16, "router": "vllm-router"}},
)
def router_carries_the_streams(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """One router carries the requests in flight (warning).

    Inequality: max_inflight_groups x group_size <= 1200, where requests pass a router
    Source: PrimeIntellect-ai/prime-rl#3211: one router for a pool stalled at about 1,270 streams while its engines
    were idle.
    Cure: inference.router: direct, or fewer groups in flight.
    """
    group = resolved.spec.algorithm.group_size
    streams = layout.max_inflight_groups * group
    if layout.router == "vllm-router" and streams > ROUTER_STREAMS:
        yield finding(
            "PRL514",
            f"{streams} rollouts in flight pass one router, which is known to stall above {ROUTER_STREAMS}",
            resolved.span(("algorithm", "max_inflight_groups"))
            or resolved.span(("inference", "router"))
            or resolved.span(("algorithm",)),
            label=f"{layout.max_inflight_groups} x {group} = {streams} > {ROUTER_STREAMS}",
            rule="max_inflight_groups * group_size <= 1200",
            help="router: direct" if len(layout.engines) == 1 else f"max_inflight_groups: {ROUTER_STREAMS // group}",
            severity="warning",
        )


@layout_rule(
    "PRL515",
    refused={"store": {"segment_bytes": 2**30}},
    accepted={"store": {"segment_bytes": 2**40}},
)
def store_segments_hold_blocks(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """A rank's segment of the KV store holds more than a few objects.

    Inequality: segment of a node / ranks of the node >= 1 GiB
    Source: Mooncake (kvcache-ai/Mooncake@3b5a594): embedded mode needs a segment on every rank, an object does not
    span segments, and eviction starts at 90 %.
    Cure: nodes with more host memory, or kv_offload: none.
    """
    if layout.store is None:
        return
    for engine in layout.engines:
        ranks = engine.servers // len(engine.nodes) * engine.tp
        segment = layout.store.segment_bytes // max(1, ranks)
        if segment < 2**30:
            yield finding(
                "PRL515",
                f"each of the {ranks} ranks of a node has {segment / 2**20:.0f} MiB of the KV store",
                resolved.span(("inference", "kv_offload")) or resolved.span(("cluster",)),
                label=f"{layout.store.segment_bytes} / {ranks} = {segment} bytes, must be at least 1 GiB",
                rule="segment of a node / ranks of the node >= 1 GiB",
                help="kv_offload: none",
                related=of_cluster(resolved, ("node", "memory"), "half of it is the store's"),
            )


@layout_rule(
    "PRL520",
    refused={"ports": ((0, 40000, "engine", "http"),)},
    accepted={"ports": ((0, 20000, "engine", "http"), (1, 20000, "engine", "http"))},
)
def ports_are_free(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Every process has ports of its own, below those that the system hands out.

    Inequality: no port twice on a node; port <= 65535; port < 32768 (warning)
    Source: Linux gives ports from 32768 to outgoing connections; one of them may hold a server's port when it starts.
    vllm-router's metrics have a port of the ledger, never its own plus 21000.
    Cure: a lower base_port in the cluster file.
    """
    seen: dict[tuple[int, int], str] = {}
    for use in layout.ports:
        name = f"{use.role} {use.purpose}"
        other = seen.setdefault((use.node, use.port), name)
        if other is not name:
            yield finding(
                "PRL520",
                f"{name} and {other} share port {use.port} of node {use.node}",
                resolved.span(("cluster",)),
                rule="no port twice on a node",
                help="a cluster file with another base_port",
            )
    highest = max((use.port for use in layout.ports), default=0)
    if highest >= FIRST_EPHEMERAL_PORT:
        yield finding(
            "PRL520",
            f"ports up to {highest} lie in the range that the system gives to outgoing connections",
            resolved.span(("cluster",)),
            label=f"{highest} > {LARGEST_PORT if highest > LARGEST_PORT else FIRST_EPHEMERAL_PORT - 1}",
            rule="port < 32768",
            help="base_port: 20000",
            severity="error" if highest > LARGEST_PORT else "warning",
            related=of_cluster(resolved, ("base_port",), "first port of the range"),
        )


@layout_rule(
    "PRL516",
    refused={"layout": {"nodes": 64}, "spec": {"cluster": "h200-64x8"}},
    accepted={"layout": {"nodes": 28}, "spec": {"cluster": "h200-28x8"}},
)
def one_controller_for_the_run(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """One orchestrator controls a run of a size that was run before (warning).

    Inequality: nodes x gpus_per_node < 512
    Source: NVIDIA-NeMo/RL#945 and verl-project/verl#2995: single controllers that stalled or timed out at 512 GPUs.
    Cure: fewer nodes, or several runs.
    """
    gpus = layout.nodes * resolved.cluster.node.gpus
    if resolved.gpu.device == "cuda" and gpus >= CONTROLLED_GPUS:
        yield finding(
            "PRL516",
            f"one orchestrator for {gpus} GPUs: controllers of other systems stalled at {CONTROLLED_GPUS}",
            resolved.span(("nodes",)) or resolved.span(("cluster",)),
            label=f"{layout.nodes} x {resolved.cluster.node.gpus} = {gpus} >= {CONTROLLED_GPUS}",
            rule="nodes * gpus_per_node < 512",
            help=f"nodes: {(CONTROLLED_GPUS - 1) // resolved.cluster.node.gpus}",
            severity="warning",
        )
