"""The command of an engine server: `vllm serve`, every flag written out, one a line."""

from __future__ import annotations

import json
import re

from prlc.compiler.bundle.fabric import collective_variables, nic_table, transfer_variables
from prlc.compiler.layout import EngineLayout, LaunchInputs
from prlc.schema.plan import Launch, Table, Variable
from prlc.schema.topology import Endpoint

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")


def checkpoint(inputs: LaunchInputs) -> str:
    """What engines load: a hub id or an absolute folder as it is, another folder below the run directory."""
    model = inputs.trainer.model
    return model if model.startswith("/") or HUB_ID.match(model) else f"{{RUN_DIR}}/{model}"


def engine(inputs: LaunchInputs, layout: EngineLayout) -> Launch:
    """How all servers of one engine role start. Raises ValueError for a KV path that cannot serve replay."""
    cuda = inputs.gpu.device == "cuda"
    endpoints = _endpoints(inputs, layout.role)
    tables = [
        Table(name="NODE", values=tuple(str(e.node) for e in endpoints)),
        Table(name="PORT", values=tuple(str(e.port) for e in endpoints)),
    ]
    if cuda:
        tables.append(Table(name="DEVICES", values=tuple(",".join(map(str, e.devices)) for e in endpoints)))
    if cuda and inputs.cluster.node.nics:
        devices = [e.devices for e in endpoints]
        tables += [
            Table(name="NIC", values=nic_table(inputs.cluster.node, devices, port=True)),
            Table(name="STORE_NIC", values=nic_table(inputs.cluster.node, devices, port=False)),
        ]
    if layout.dp > 1:
        tables += _data_parallel_tables(inputs, layout, endpoints)
    transfer = _kv_transfer(inputs, layout)
    if transfer and transfer["kv_connector"] == "NixlConnector":
        ports = tuple(str(inputs.layout.port(layout.role, e.index, "side_channel")) for e in endpoints)
        tables.append(Table(name="SIDE_CHANNEL", values=ports))
    return Launch(
        role=layout.role,
        nodes=layout.nodes,
        tasks_per_node=layout.servers // len(layout.nodes),
        cpus_per_task=max(1, inputs.cluster.node.cpus // max(1, layout.servers // len(layout.nodes))),
        gpus_per_task=layout.tp if cuda else 0,
        tables=tuple(tables),
        environment=_environment(inputs, layout, transfer),
        command=("vllm", "serve", checkpoint(inputs)),
        flags=_flags(inputs, layout, transfer),
    )


def _endpoints(inputs: LaunchInputs, role: str) -> tuple[Endpoint, ...]:
    return next(r.endpoints for r in inputs.topology.roles if r.name == role)


def _data_parallel_tables(inputs: LaunchInputs, layout: EngineLayout, endpoints: tuple[Endpoint, ...]) -> list[Table]:
    heads = [endpoints[e.index - e.index % layout.dp] for e in endpoints]
    return [
        Table(name="DP_RANK", values=tuple(str(e.data_parallel_rank) for e in endpoints)),
        Table(name="DP_NODE", values=tuple(str(h.node) for h in heads)),
        Table(
            name="DP_RPC_PORT",
            values=tuple(str(inputs.layout.port(layout.role, h.index, "data_parallel_rpc")) for h in heads),
        ),
        Table(
            name="DP_MASTER_PORT",
            values=tuple(str(inputs.layout.port(layout.role, h.index, "data_parallel_master")) for h in heads),
        ),
    ]


def _kv_transfer(inputs: LaunchInputs, layout: EngineLayout) -> dict[str, object] | None:
    if inputs.layout.store is not None:
        extra = {"load_async": True, "lookup_async": True, "save_decode_cache": True}
        return {
            "kv_connector": "MooncakeStoreConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": extra,
        }
    if layout.role == "engine":
        return None
    if inputs.layout.router_replay:
        raise ValueError("prefill and decode apart with router replay need the Mooncake store as KV path")
    role = "kv_producer" if layout.role == "prefill" else "kv_consumer"
    return {"kv_connector": "NixlConnector", "kv_role": role}


def _flags(
    inputs: LaunchInputs, layout: EngineLayout, transfer: dict[str, object] | None
) -> tuple[tuple[str, ...], ...]:
    cuda, precision = inputs.gpu.device == "cuda", inputs.spec.inference.precision
    flags: list[tuple[str, ...]] = [
        ("--served-model-name", "policy"),
        ("--host", "{ADDRESS}"),
        ("--port", "{PORT}"),
        ("--middleware", "prlc.runtime.inference.access.RunToken"),
        ("--dtype", DTYPES[precision]),
    ]
    if precision == "fp8":
        flags.append(("--quantization", _quantization(inputs)))
    flags.append(("--tensor-parallel-size", str(layout.tp)))
    if layout.dp > 1:
        flags += [
            ("--data-parallel-size", str(layout.dp)),
            ("--data-parallel-rank", "{DP_RANK}"),
            ("--data-parallel-external-lb",),
            ("--data-parallel-address", "{DP_ADDRESS}"),
            ("--data-parallel-rpc-port", "{DP_RPC_PORT}"),
        ]
    if layout.expert_parallel:
        flags.append(("--enable-expert-parallel",))
        if layout.all2all != "none":
            flags.append(("--all2all-backend", layout.all2all))
    if cuda and precision == "fp8":
        # left to itself vLLM picks Triton or CUTLASS on Hopper, with other numerics than the trainer's
        flags.append(("--moe-backend", "deep_gemm"))
    flags += [
        ("--max-model-len", str(layout.max_model_len)),
        ("--max-num-seqs", str(layout.max_num_seqs)),
        ("--max-num-batched-tokens", str(layout.max_num_batched_tokens)),
        ("--enable-prefix-caching",),
        ("--logprobs-mode", "processed_logprobs"),
        ("--generation-config", "vllm"),
        ("--enable-scale-out",),
        ("--enable-prompt-tokens-details",),
        ("--weight-transfer-config", _json({"backend": "prlc_fs"})),
        ("--seed", str(inputs.spec.seed)),
    ]
    if inputs.layout.router_replay:
        flags.append(("--enable-return-routed-experts",))
    if cuda:
        flags.append(("--gpu-memory-utilization", f"{layout.gpu_memory_utilization:g}"))
    else:
        flags.append(("--enforce-eager",))
        # the CPU's rotary kernel is wrong for MLA in eager mode; the native one is right
        flags.append(("--compilation-config", _json({"custom_ops": ["all", "-rotary_embedding"]})))
    if transfer is not None:
        flags.append(("--kv-transfer-config", _json(transfer)))
    return tuple(flags)


def _quantization(inputs: LaunchInputs) -> str:
    """fp8 for a checkpoint that is stored so; else vLLM quantizes on load, in the blocks that DeepGEMM takes.

    With fp8 alone a bf16 checkpoint gets one scale a tensor, which DeepGEMM's experts refuse (vLLM 0.32.0,
    fused_moe/experts/deep_gemm_moe.py _supports_quant_scheme).
    """
    stored = {c.hf_id for c in inputs.model.checkpoints if (c.quant or {}).get("quant_method") == "fp8"}
    return "fp8" if inputs.trainer.model in stored else "fp8_per_block"


def _environment(
    inputs: LaunchInputs, layout: EngineLayout, transfer: dict[str, object] | None
) -> tuple[Variable, ...]:
    found = [
        Variable(name="VLLM_SERVER_DEV_MODE", value="1", why="routes of weight updates"),
        Variable(name="VLLM_HOST_IP", value="{ADDRESS}", why="the cluster's own address, not a guess"),
        Variable(name="HF_HUB_OFFLINE", value="1", why="a job fetches nothing"),
        Variable(name="VLLM_NO_USAGE_STATS", value="1"),
        Variable(name="DO_NOT_TRACK", value="1"),
        Variable(name="PYTHONHASHSEED", value="0", why="KV block hashes agree between servers"),
    ]
    if inputs.layout.router_replay or inputs.gpu.device == "cpu":
        found.append(Variable(name="VLLM_USE_V2_MODEL_RUNNER", value="1", why="returns routed experts"))
    if inputs.gpu.device == "cuda":
        found.append(Variable(name="CUDA_VISIBLE_DEVICES", value="{DEVICES}"))
        found += collective_variables(inputs.cluster.node)
        found += transfer_variables(inputs.cluster.node) if transfer else ()
        if inputs.spec.inference.precision == "fp8":
            found.append(Variable(name="VLLM_USE_DEEP_GEMM_E8M0", value="0", why="scales as the trainer rounds them"))
    else:
        gib = max(1, layout.kv_bytes // 2**30)
        found += [
            Variable(name="TRITON_INTERPRET", value="1", why="Triton has no CPU backend"),
            Variable(name="PRLC_VLLM_MENDS", value="1", why="what vLLM's CPU build lacks"),
            Variable(name="VLLM_CPU_KVCACHE_SPACE", value=str(gib), why="GiB"),
            Variable(name="VLLM_CPU_OMP_THREADS_BIND", value="nobind", why="servers share the cores"),
            Variable(name="OMP_NUM_THREADS", value="1"),
        ]
    if inputs.layout.router == "vllm-router":
        found.append(Variable(name="PRLC_OPEN_HEALTH", value="1", why="the router's probes carry no token"))
    if layout.dp > 1:
        found.append(Variable(name="VLLM_DP_MASTER_PORT", value="{DP_MASTER_PORT}"))
    if transfer and transfer["kv_connector"] == "NixlConnector":
        found += [
            Variable(name="VLLM_NIXL_SIDE_CHANNEL_HOST", value="{ADDRESS}"),
            Variable(name="VLLM_NIXL_SIDE_CHANNEL_PORT", value="{SIDE_CHANNEL}"),
        ]
    if inputs.layout.store is not None:
        found += _store_environment(inputs, layout)
    return tuple(found)


def _store_environment(inputs: LaunchInputs, layout: EngineLayout) -> list[Variable]:
    store = inputs.layout.store
    assert store is not None
    ranks = layout.servers // len(layout.nodes) * layout.tp
    segment = store.segment_bytes // ranks if set(layout.nodes) & set(store.nodes) else 0
    config = {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": f"{{NODE_{store.master_node}}}:{inputs.layout.port('store', 0, 'rpc')}",
        "protocol": "rdma" if inputs.gpu.device == "cuda" else "tcp",
        "device_name": "{STORE_NIC}" if inputs.gpu.device == "cuda" and inputs.cluster.node.nics else "",
        "mode": "embedded",
        "global_segment_size": segment,
        "local_buffer_size": 4 * 2**30 if inputs.gpu.device == "cuda" else 128 * 2**20,
    }
    return [
        Variable(name="PRLC_MOONCAKE_JSON", value=_json(config), why="the agent makes it MOONCAKE_CONFIG_PATH"),
        Variable(name="MC_TCP_ENABLE_CONNECTION_POOL", value="1", why="else one connect a transfer"),
    ]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
