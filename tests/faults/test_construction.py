"""Faults that no spec can produce: what is true of every launch, config and script that the compiler emits."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import pytest
import yaml
from prlc import catalog
from prlc.schema.plan import Plan
from prlc.schema.run import RunSpec

from tests.faults.plans import bundles, launches, plans, words

ROOT = Path(__file__).parents[2]
NAMES = sorted(plans())


def keys(kind: object = RunSpec, found: set[str] | None = None) -> set[str]:
    """Every key that a spec may hold."""
    found = set() if found is None else found
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        for name, inner in typing.get_type_hints(kind).items():
            found.add(name)
            keys(inner, found)
    for inner in typing.get_args(kind):
        keys(inner, found)
    return found


def value(flags: tuple[tuple[str, ...], ...], flag: str) -> str | None:
    return next((" ".join(f[1:]) for f in flags if f[0] == flag), None)


# what neither a spec nor a command of this release has, so that its faults cannot be asked for
ABSENT = (
    "token_batch_size", "sft", "difficulty", "renderer", "trace", "profile", "lora", "env_vars", "resume",
    "device_mapping", "chunks", "impl", "colocate", "p2p", "ep_backend", "compile", "nccl_broadcast", "delta",
    "steps_per_rollout", "indexer_replay", "trust_remote_code", "eplb", "speculative", "pipeline", "mxfp8", "sleep",
    "attn_implementation", "selective_targets", "metric_roles", "admin_urls", "balanced",
)  # fmt: skip


@pytest.mark.parametrize("word", ABSENT)
def test_no_spec_can_ask_for(word: str) -> None:
    assert len(keys()) > 80
    assert [key for key in keys() if word in key] == []


NEVER = {
    "engine": (
        "--trust-remote-code", "--no-enable-prefix-caching", "--pipeline-parallel-size", "--enable-sleep-mode",
        "expandable_segments", "deepep_v2", "VLLM_DEEPEP", "NVSHMEM_", "NixlConnector --enable-return-routed-experts",
        "--enable-lora", "--enable-eplb", "--speculative-config", "--decode-context-parallel-size", "MultiConnector",
        "OffloadingConnector", "enable_offload",
    ),
    "store": ("-root_fs_dir", "-enable_offload", "-cluster_id", "-enable_snapshot", "-http_metadata_server"),
    "router": ("consistent_hash", "--service-discovery", "--enable-igw", "--mini-lb"),
    "trainer": ("--standalone", "--rdzv"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NEVER.items() for text in texts])
def test_no_command_has(kind: str, text: str) -> None:
    found = launches(kind)
    assert found
    assert [(name, word) for name, launch in found for word in words(launch) if text in word] == []


ALWAYS = {
    "engine": (
        "--logprobs-mode processed_logprobs", "--enable-prefix-caching", "--generation-config vllm",
        "PYTHONHASHSEED=0", "HF_HUB_OFFLINE=1", '--weight-transfer-config {"backend":"prlc_fs"}',
        "VLLM_HOST_IP={ADDRESS}", "--host {ADDRESS}", "--port {PORT}",
    ),
    "router": ("--policy sticky_least_loaded", "--prometheus-port ", "--prometheus-host {NODE_"),
    "trainer": ("--master-addr {NODE_", "--node-rank {INDEX}", "--master-port "),
    "store": ("-rpc_address={NODE_", "-metrics_port="),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ALWAYS.items() for text in texts])
def test_every_command_has(kind: str, text: str) -> None:
    found = launches(kind)
    assert found
    assert [name for name, launch in found if not any(text in word for word in words(launch))] == []


def on(name: str) -> Plan:
    return plans()[name]


def gpu_trainers() -> list[list[str]]:
    return [words(launch) for name, launch in launches("trainer") if on(name).trainer.device == "cuda"]


def test_gpu_trainers_use_expandable_segments() -> None:
    assert len(gpu_trainers()) > 3
    assert all("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in found for found in gpu_trainers())


def test_engines_in_fp8_name_their_kernels_and_their_scales() -> None:
    found = [words(launch) for name, launch in launches("engine") if "fp8" in name or name.startswith("glm-5.1")]
    assert len(found) >= 3
    for flags in found:
        assert "--moe-backend deep_gemm" in flags
        assert "--quantization fp8_per_block" in flags
        assert "VLLM_USE_DEEP_GEMM_E8M0=0" in flags


def test_gpu_engines_see_their_own_devices_and_no_more() -> None:
    for name, launch in launches("engine"):
        if on(name).trainer.device != "cuda":
            continue
        assert "CUDA_VISIBLE_DEVICES={DEVICES}" in words(launch)
        devices = next(table.values for table in launch.tables if table.name == "DEVICES")
        assert {len(text.split(",")) for text in devices} == {launch.gpus_per_task}
        most = on(name).cluster.gpus_per_node
        assert all(0 <= int(device) < most for text in devices for device in text.split(","))


def test_processes_of_a_node_never_share_a_gpu() -> None:
    for name, made in plans().items():
        taken = [(e.node, d) for role in made.topology.roles for e in role.endpoints for d in e.devices]
        assert len(taken) == len(set(taken)), name


def test_an_external_balancer_has_at_least_two_ranks_and_each_knows_its_own() -> None:
    seen = 0
    for _, launch in launches("engine"):
        size = value(launch.flags, "--data-parallel-size")
        if size is None:
            assert value(launch.flags, "--data-parallel-external-lb") is None
            continue
        seen += 1
        assert int(size) >= 2
        assert value(launch.flags, "--data-parallel-external-lb") == ""
        ranks = next(table.values for table in launch.tables if table.name == "DP_RANK")
        assert {int(rank) for rank in ranks} == set(range(int(size)))
    assert seen >= 2


def test_deepep_is_asked_for_only_with_several_ranks() -> None:
    for _, launch in launches("engine"):
        if (value(launch.flags, "--all2all-backend") or "").startswith("deepep"):
            assert value(launch.flags, "--enable-expert-parallel") == ""
            assert int(value(launch.flags, "--data-parallel-size") or 0) > 1


def test_ranks_of_a_group_differ_in_their_tables_alone() -> None:
    # one script a role: no flag or variable names a rank but by a lookup
    for name, launch in launches("engine"):
        tables = {table.name for table in launch.tables}
        assert all(len(table.values) == len(launch.nodes) * launch.tasks_per_node for table in launch.tables), name
        assert {"NODE", "PORT"} <= tables


def test_decode_states_its_batch() -> None:
    for _, launch in launches("engine"):
        assert int(value(launch.flags, "--max-num-seqs") or 0) > 0
        assert int(value(launch.flags, "--max-num-batched-tokens") or 0) > 0


@pytest.mark.parametrize("name", NAMES)
def test_shared_values_are_equal(name: str) -> None:
    made = on(name)
    trainer, orchestrator = made.trainer, made.orchestrator
    assert trainer.seq_len == orchestrator.seq_len
    assert trainer.model == orchestrator.model == made.model.checkpoint
    assert trainer.max_steps == orchestrator.max_steps
    assert trainer.replay.enabled == orchestrator.routed_experts
    for _, launch in [pair for pair in launches("engine") if pair[0] == name]:
        assert int(value(launch.flags, "--max-model-len") or 0) == trainer.seq_len
        assert launch.command[2].endswith(trainer.model)
        assert (value(launch.flags, "--enable-return-routed-experts") is not None) == trainer.replay.enabled
        if trainer.replay.enabled:
            assert "VLLM_USE_V2_MODEL_RUNNER=1" in words(launch)
    parallel = trainer.parallel
    ranks = sum(len(e.devices) or 1 for r in made.topology.roles if r.kind == "trainer" for e in r.endpoints)
    if trainer.device == "cuda":
        assert parallel.dp_replicate * parallel.dp_shard * parallel.cp == ranks


@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_its_roles_and_an_evaluation_that_ends(name: str) -> None:
    made = on(name)
    kinds = {role.kind for role in made.topology.roles}
    assert kinds >= {"trainer", "orchestrator"}
    assert kinds & {"engine", "decode"}
    assert made.orchestrator.evaluation.rollouts > 0
    servers = sum(len(r.endpoints) for r in made.topology.roles if r.kind in ("engine", "prefill", "decode"))
    assert servers == 1 or "router" in kinds or made.orchestrator.route == "direct"


def test_clients_and_servers_have_one_port() -> None:
    for name, made in plans().items():
        engines = {f"{e.node}:{e.port}" for r in made.topology.roles for e in r.endpoints if r.kind != "trainer"}
        for _, launch in [pair for pair in launches("router") if pair[0] == name]:
            urls = re.findall(r"http://\{NODE_(\d+)\}:(\d+)", " ".join(words(launch)))
            assert urls
            assert {f"{node}:{port}" for node, port in urls} <= engines


def test_no_port_is_used_twice_on_a_node() -> None:
    for name, made in plans().items():
        taken = [(e.node, e.port) for role in made.topology.roles for e in role.endpoints if e.port]
        assert len(taken) == len(set(taken)), name


def test_the_store_is_the_runs_own_and_engines_wait_for_it() -> None:
    made = on("store")
    (store,) = [role for role in made.topology.roles if role.kind == "store"]
    assert len(store.endpoints) == 1
    assert store.restarts > 0
    for role in made.topology.roles:
        if role.kind in ("prefill", "decode"):
            assert "store" in {gate.role for gate in role.gates}


def test_engines_use_the_store_as_it_wants_to_be_used() -> None:
    found = [launch for name, launch in launches("engine") if name == "store"]
    assert found
    for launch in found:
        variables = {v.name: v.value for v in launch.environment}
        config = json.loads(variables["PRLC_MOONCAKE_JSON"])
        assert config["metadata_server"] == "P2PHANDSHAKE"
        assert (config["mode"], config["protocol"]) == ("embedded", "rdma")
        assert config["global_segment_size"] > 0
        assert variables["MC_TCP_ENABLE_CONNECTION_POOL"] == "1"
        extra = json.loads(value(launch.flags, "--kv-transfer-config") or "{}")["kv_connector_extra_config"]
        assert extra["lookup_async"] is True
        assert extra["save_decode_cache"] is True


def test_side_channels_have_a_port_each() -> None:
    for name in ("point-to-point",):
        ports = [t.values for n, launch in launches("engine") if n == name for t in launch.tables
                 if t.name == "SIDE_CHANNEL"]  # fmt: skip
        assert len(ports) == 2
        for launch in [launch for n, launch in launches("engine") if n == name]:
            nodes = next(t.values for t in launch.tables if t.name == "NODE")
            channel = next(t.values for t in launch.tables if t.name == "SIDE_CHANNEL")
            assert len(set(zip(nodes, channel, strict=True))) == len(nodes)


SCRIPT_NEVER = (
    "uv sync", "uv run", "pip install", "pkill", "killall", "rm -rf", "sleep 3600", "source .env", "test-only",
    "curl ", "wget ", "git ", "huggingface-cli", "#SBATCH --kill-on-bad-exit", "hostname -I",
    "--dependency", "/dev/shm",
)  # fmt: skip


@pytest.mark.parametrize("text", SCRIPT_NEVER)
def test_no_script_has(text: str) -> None:
    scripts = {(n, p): t for n, files in bundles().items() for p, t in files.items() if p.endswith((".sh", ".sbatch"))}
    assert len(scripts) > 20
    assert [place for place, script in scripts.items() if text in script] == []


SCRIPT_ALWAYS = (
    "--kill-on-bad-exit=", "--overlap", "--input=none", "unset SLURM_EXPORT_ENV", "#SBATCH --open-mode=append",
    "#SBATCH --signal=B:USR1@", "#SBATCH --output=%x-%j.out", "set -euo pipefail", "--export=ALL", "trap ", "wait -n",
    "getent ahostsv4",
)  # fmt: skip


@pytest.mark.parametrize("text", SCRIPT_ALWAYS)
def test_every_batch_script_has(text: str) -> None:
    batches = {name: files["run.sbatch"] for name, files in bundles().items() if "run.sbatch" in files}
    assert len(batches) > 5
    assert [name for name, script in batches.items() if text not in script] == []


def test_configs_are_files_and_no_json_is_spliced_into_a_script() -> None:
    for files in bundles().values():
        for path in ("config/trainer.yaml", "config/orchestrator.yaml", "config/topology.yaml"):
            assert isinstance(yaml.safe_load(files[path]), dict)


def test_experts_are_seen_under_every_name() -> None:
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    found = set()
    for name in catalog.names("model"):
        model = catalog.model(name)
        stated = [key for key in names if model.config.get(key)]
        found |= set(stated)
        assert (catalog.facts(model).num_experts > 0) == bool(stated), name
    assert found == set(names)


def test_no_package_without_a_working_wheel_is_pinned() -> None:
    pinned = (
        "\n".join(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))
        + (ROOT / "pyproject.toml").read_text()
    )
    for package in ("deep-ep", "deep_ep", "deep-gemm", "deep_gemm", "flash-mla", "flash_mla"):
        assert not re.search(rf'^[ "]*{package}\b', pinned, re.M), package


def test_engines_load_weights_by_their_own_loader() -> None:
    # one backend on both sides, no converter a model needs and no rank arithmetic
    backends = {value(launch.flags, "--weight-transfer-config") for _, launch in launches("engine")}
    assert backends == {'{"backend":"prlc_fs"}'}
    assert {made.trainer.publish_dtype for made in plans().values()} <= {"float32", "bfloat16"}
