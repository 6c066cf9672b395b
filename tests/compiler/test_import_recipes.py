"""The public recipes of prime-rl at 559b447 (2026-08-21), written anew with the keys that are on record.

Their published settings: nodes, degrees, lengths, batches. Each is imported, every key of it is accounted for, and the
spec is planned, or refused for the reason that is known. A key for the trainer's nodes is not on record: they are
--set, as a user would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc.compiler.cli import main
from prlc.compiler.plan import plan

MODELS = Path(__file__).parents[1] / "recipes" / "models"


def recipe(
    model: str,
    engines: int,
    *,
    seq_len: int,
    batch: int,
    lag: int,
    cp: int,
    ep: int = 8,
    more: str = "",
    vllm: str = "",
) -> str:
    """One document of shared keys and the three roles."""
    return f"""
seq_len = {seq_len}
num_infer_nodes = {engines}

[trainer.model]
name = "{model}"
cp = {cp}
ep = {ep}
{more}

[orchestrator]
batch_size = {batch}
group_size = 16
max_off_policy_steps = {lag}

[inference.model]
name = "{model}"

[inference.deployment]
num_nodes = {engines}
gpus_per_node = 8

[inference.vllm]
{vllm}
"""


OFFLOAD = "optim_cpu_offload = true"
NEMOTRON = recipe(
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 4, seq_len=131072, batch=256, lag=32, cp=8, more=OFFLOAD,
    vllm="tensor_parallel_size = 8\nenable_expert_parallel = true\nenable_return_routed_experts = true",
) + '[env_vars]\nPYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"\n'  # fmt: skip
PLANNED = {
    "glm-5.1": recipe(
        "zai-org/GLM-5.1", 16, seq_len=131072, batch=256, lag=8, cp=4, more=f'{OFFLOAD}\nquantization = "fp8"',
        vllm="gpu_memory_utilization = 0.75\nmax_num_seqs = 96\nmax_num_batched_tokens = 96",
    ),
    "nemotron-3-super": NEMOTRON,
    "minimax-m2.5": recipe(
        "MiniMaxAI/MiniMax-M2.5", 12, seq_len=131072, batch=2048, lag=16, cp=4, more=OFFLOAD,
        vllm="tensor_parallel_size = 8",
    ),
    "intellect-3.1": recipe(
        "PrimeIntellect/INTELLECT-3.1", 12, seq_len=131072, batch=2048, lag=8, cp=2, more=OFFLOAD,
        vllm="tensor_parallel_size = 8",
    ),
    "qwen3-30b-a3b-math": recipe(
        "Qwen/Qwen3-30B-A3B", 2, seq_len=32768, batch=512, lag=8, cp=1, vllm="tensor_parallel_size = 8"
    ),
    "qwen3-30b-a3b-tool": recipe(
        "Qwen/Qwen3-30B-A3B", 1, seq_len=32768, batch=512, lag=32, cp=2, vllm="tensor_parallel_size = 4"
    ),
}  # fmt: skip
ON_GPU = NEMOTRON.replace(OFFLOAD, "optim_cpu_offload = false")
# name: (document, further --set values, words of the refusal)
SWE = recipe("Qwen/Qwen3-30B-A3B", 2, seq_len=131072, batch=512, lag=16, cp=2, vllm="tensor_parallel_size = 8")
AIR = """
seq_len = 131072
num_infer_nodes = 3
[trainer.model]
name = "zai-org/GLM-4.5-Air"
cp = 4
[orchestrator]
group_size = 16
max_off_policy_steps = 32
[inference]
enable_return_routed_experts = true
"""
GLM5 = """
num_infer_nodes = 16
[trainer.model]
name = "zai-org/GLM-5"
cp = 1
ep = 8
[orchestrator]
batch_size = 4096
group_size = 16
max_off_policy_steps = 16
[inference.vllm]
gpu_memory_utilization = 0.80
"""
SERVING = """
[inference.model]
name = "zai-org/GLM-5.2-FP8"
[inference.deployment]
num_nodes = 16
[inference.vllm]
max_model_len = 91000
"""
SIGN_SGD = ("algorithm.batch_size=256", "trainer.optimizer.offload=cpu")  # AdamW's state is twice SignSGD's
REFUSED = {
    "nemotron-3-super-2-nodes": (ON_GPU, ("trainer.nodes=2", "algorithm.max_inflight_groups=96"), "a GPU"),
    "qwen3-30b-a3b-swe": (SWE, ("trainer.nodes=2",), "exceed the 40,960 positions"),
    "glm-4.5-air": (AIR, ("trainer.nodes=1", *SIGN_SGD), "host memory"),
    "glm-4.5-air-as-published": (AIR, ("trainer.nodes=1",), "missing algorithm.batch_size"),
    "glm-5": (GLM5, ("trainer.nodes=16",), "missing sequence.seq_len"),
    "glm-5.2-serving": (SERVING, (), "missing algorithm.group_size"),
}
TRAINERS = {"glm-5.1": 16, "nemotron-3-super": 4, "minimax-m2.5": 4, "intellect-3.1": 4, "qwen3-30b-a3b-math": 2,
            "qwen3-30b-a3b-tool": 1}  # fmt: skip
NODES = {"glm-5.1": 32, "nemotron-3-super": 8, "minimax-m2.5": 16, "intellect-3.1": 16, "qwen3-30b-a3b-math": 4,
         "qwen3-30b-a3b-tool": 2}  # fmt: skip
# concurrency of the pinned recipes: no key for it is on record
IN_FLIGHT = {"minimax-m2.5": 256, "intellect-3.1": 256, "nemotron-3-super": 96}
ALL = {**PLANNED, **{name: text for name, (text, _, _) in REFUSED.items()}}


def imported(text: str, folder: Path, values: Sequence[str], *more: str) -> Result:
    """`prlc import` of the document as a file."""
    file = folder / "rl.toml"
    file.write_text(text, "utf-8")
    return CliRunner().invoke(main, ["import", str(file), *(f"--set={one}" for one in values), *more])


def values_of(name: str) -> list[str]:
    """What a user says beside the file."""
    held = [f"trainer.nodes={TRAINERS[name]}"]
    return held + ([f"algorithm.max_inflight_groups={IN_FLIGHT[name]}"] if name in IN_FLIGHT else [])


@pytest.mark.parametrize("name", ALL)
def test_every_key_of_a_recipe_is_accounted_for_and_known(name: str, tmp_path: Path) -> None:
    values = values_of(name) if name in PLANNED else REFUSED[name][1]
    rows = json.loads(imported(ALL[name], tmp_path, values, "--json").stdout)["keys"]
    assert len(rows) == sum(" = " in line for line in ALL[name].splitlines())
    allowed = {"mapped", "decided", "no counterpart"} | ({"not supported"} if name == "glm-5.2-serving" else set())
    assert {row["verdict"] for row in rows} <= allowed
    assert all(row["reason"] or row["path"] for row in rows)


@pytest.mark.parametrize("name", PLANNED)
def test_a_recipe_is_planned_with_its_pins(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run.yaml"
    result = imported(PLANNED[name], tmp_path, values_of(name), "-o", str(out))
    assert result.exit_code == 0, result.output
    found, diagnostics = plan(out.read_text("utf-8"), str(out))
    assert found is not None, diagnostics
    trainer = next(role for role in found.topology.roles if role.kind == "trainer")
    given = {row.strip().partition(" = ")[0]: row.partition(" = ")[2] for row in PLANNED[name].splitlines()}
    assert len(trainer.endpoints) == TRAINERS[name]
    assert found.trainer.parallel.cp == int(given["cp"])
    assert found.trainer.parallel.ep == int(given["ep"])
    assert found.trainer.seq_len == int(given["seq_len"])
    assert (found.trainer.optimizer.offload == "cpu") or "optim_cpu_offload" not in given
    assert found.trainer.precision == ("fp8" if "quantization" in given else "bf16")
    assert f"{NODES[name]} nodes x 8 H200" in result.output


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_planned_is_refused_for_the_reason_that_is_known(name: str, tmp_path: Path) -> None:
    text, values, words = REFUSED[name]
    result = imported(text, tmp_path, values)
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_model_of_ones_own_takes_the_place_of_the_catalogs(tmp_path: Path) -> None:
    """The recipe trains the release of July 2025, which has 262,144 positions."""
    result = imported(SWE, tmp_path, ["trainer.nodes=2", f"model={MODELS / 'qwen3-30b-a3b-2507'}"])
    assert result.exit_code == 0, result.output
    assert "overridden (2)" in result.output
