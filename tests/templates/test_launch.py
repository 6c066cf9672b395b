"""The commands of every role, as bash hands them on, and as the programs' own parsers read them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from prlc.compiler.bundle.emit import build, write
from prlc.compiler.bundle.launch import launches
from prlc.compiler.layout import LaunchInputs

from tests.templates.argv import argv
from tests.templates.layouts import cpu, h200
from tests.templates.lint import problems
from tests.templates.plans import plan

NODES = tuple(f"10.0.0.{i + 1}" for i in range(4))
# Reads each line of JSON argv with vLLM's own parser; an abbreviated or unknown flag is an error.
PARSE = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
parser = make_arg_parser(FlexibleArgumentParser())
known = set(parser._option_string_actions)
for line in sys.stdin:
    argv = json.loads(line)
    short = [word for word in argv if word.startswith('--') and word not in known]
    assert not short, f'not a full flag: {short}'
    validate_parsed_serve_args(parser.parse_args(argv))
    print('fine')
"""


def bundle(inputs: LaunchInputs, folder: Path) -> Path:
    it = dataclasses.replace(plan(inputs.layout.target), topology=inputs.topology, launches=launches(inputs))
    write(build(it), folder / "bundle")
    assert problems(folder / "bundle") == []
    return folder / "bundle" / "roles"


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_a_cpu_engine_is_started_with_everything_it_needs(tmp_path: Path) -> None:
    words, environment = argv(bundle(cpu("/models/tiny"), tmp_path) / "engine.sh", 0, NODES, tmp_path / "x")
    assert words[:3] == ["vllm", "serve", "/models/tiny"]
    assert (value(words, "--host"), value(words, "--port")) == ("10.0.0.1", "20010")
    assert value(words, "--dtype") == "float32"
    assert json.loads(value(words, "--weight-transfer-config")) == {"backend": "prlc_fs"}
    assert {"--enforce-eager", "--enable-return-routed-experts", "--enable-scale-out"} <= set(words)
    assert "--data-parallel-size" not in words
    wanted = {
        "PRLC_VLLM_MENDS": "1", "TRITON_INTERPRET": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_HOST_IP": "10.0.0.1", "VLLM_USE_V2_MODEL_RUNNER": "1",
    }  # fmt: skip
    assert {name: environment.get(name) for name in wanted} == wanted


def test_each_decode_rank_knows_itself_and_its_head(tmp_path: Path) -> None:
    roles = bundle(h200("org/model"), tmp_path)
    words, environment = argv(roles / "decode.sh", 9, NODES, tmp_path / "x")
    assert words[:3] == ["vllm", "serve", "org/model"]
    assert value(words, "--host") == "10.0.0.3"
    assert value(words, "--data-parallel-rank") == "9"
    assert (value(words, "--data-parallel-address"), value(words, "--data-parallel-size")) == (
        "10.0.0.2",
        "16",
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["VLLM_DP_MASTER_PORT"] == "20200"
    store = json.loads(environment["PRLC_MOONCAKE_JSON"])
    assert store["master_server_address"] == "10.0.0.4:20003"
    assert store["global_segment_size"] == 2**40 // 8, "the ranks of a node share its segment"
    assert json.loads(value(words, "--kv-transfer-config"))["kv_connector"] == "MooncakeStoreConnector"
    assert value(words, "--moe-backend") == "deep_gemm"
    assert value(words, "--middleware") == "prlc.runtime.inference.access.RunToken"
    assert environment["PRLC_OPEN_HEALTH"] == "1", "vllm-router probes without a token"


def test_each_process_has_the_nics_of_its_gpus(tmp_path: Path) -> None:
    roles = bundle(h200("org/model"), tmp_path)
    _, decode = argv(roles / "decode.sh", 9, NODES, tmp_path / "x")
    assert decode["UCX_NET_DEVICES"] == "mlx5_1:1"
    assert json.loads(decode["PRLC_MOONCAKE_JSON"])["device_name"] == "mlx5_1"
    assert (decode["UCX_IB_GID_INDEX"], decode["MC_GID_INDEX"]) == ("3", "3")
    _, trainer = argv(roles / "trainer.sh", 0, NODES, tmp_path / "x")
    every = "=" + ",".join(f"mlx5_{gpu}" for gpu in range(8))
    for environment in (decode, trainer):
        assert environment["NCCL_IB_HCA"] == every
        assert environment["NCCL_IB_GID_INDEX"] == "3"
        assert (environment["NCCL_SOCKET_IFNAME"], environment["GLOO_SOCKET_IFNAME"]) == ("=eth0", "eth0")
    assert "UCX_NET_DEVICES" not in trainer


def test_the_other_roles_are_told_where_to_meet(tmp_path: Path) -> None:
    roles = bundle(h200("org/model"), tmp_path)
    trainer, _ = argv(roles / "trainer.sh", 0, NODES, tmp_path / "x")
    assert trainer[0] == "torchrun"
    assert (value(trainer, "--master-addr"), value(trainer, "--node-rank")) == ("10.0.0.4", "0")
    assert value(trainer, "--config") == "/bundle/config/trainer.yaml"
    router, _ = argv(roles / "router.sh", 0, NODES, tmp_path / "x")
    assert router.count("--decode") == 16
    assert "http://10.0.0.3:20017" in router
    store, _ = argv(roles / "store.sh", 0, NODES, tmp_path / "x")
    assert store == [
        "mooncake_master", "-rpc_address=10.0.0.4", "-rpc_port=20003", "-metrics_host=10.0.0.4",
        "-metrics_port=20004",
    ]  # fmt: skip


def test_a_folder_that_is_not_absolute_lies_below_the_run_directory(tmp_path: Path) -> None:
    words, _ = argv(bundle(cpu("base"), tmp_path) / "engine.sh", 0, NODES, tmp_path / "x")
    assert words[2] == "/run-dir/base"


def test_point_to_point_transfer_refuses_replay_and_works_without() -> None:
    with pytest.raises(ValueError, match="need the Mooncake store"):
        launches(h200("org/model", store=False))
    made = {launch.role: launch for launch in launches(h200("org/model", store=False, replay=False))}
    flags = dict(flag for flag in made["prefill"].flags if len(flag) == 2)
    assert json.loads(flags["--kv-transfer-config"])["kv_role"] == "kv_producer"


@pytest.mark.runtime
def test_vllms_own_parser_takes_every_serve_line(tmp_path: Path) -> None:
    lines = []
    cases = (
        (cpu("/m"), ("engine", 0)),
        (cpu("/m", dp=2), ("engine", 1)),
        (h200("org/model"), ("prefill", 3)),
        (h200("org/model"), ("decode", 15)),
        (h200("org/model", store=False, replay=False), ("decode", 0)),
    )
    for number, (inputs, (role, index)) in enumerate(cases):
        folder = tmp_path / str(number)
        words, _ = argv(bundle(inputs, folder) / f"{role}.sh", index, NODES, folder / "x")
        lines.append(json.dumps(words[2:]))
    answer = subprocess.run(
        [sys.executable, "-c", PARSE], input="\n".join(lines), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.count("fine") == len(cases)
