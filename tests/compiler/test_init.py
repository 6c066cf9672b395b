"""prlc init: specs that plan, cluster files from what Slurm says, and nothing overwritten."""

import json
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from prlc import catalog
from prlc.compiler.cli import main
from prlc.compiler.starter import place, slurm
from prlc.compiler.starter.cluster import catalog_gpu
from prlc.compiler.starter.spec import Start, run_name, spec_text
from prlc.schema.codec import load
from prlc.schema.hardware import Cluster
from prlc.schema.run import RunSpec

SINFO = "cpu*|1-00:00:00|up\ngpu|12:00:00|up\nold|infinite|down\n"
GPU_NODE = (
    "NodeName={name} Arch=x86_64 CPUAlloc=0 CPUTot=192 Gres={gres} OS=Linux 6.1.0 #1 SMP RealMemory=2000000 "
    "State={state} TmpDisk=7000000 Partitions=gpu Reason=a reason of words [root@2026-01-01T00:00:00]\n"
)
CPU_NODE = "NodeName=c1 CPUTot=64 RealMemory=256000 TmpDisk=0 Gres=(null) State=IDLE Partitions=cpu\n"
H200 = "gpu:nvidia_h200:8(S:0-1)"


def prlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["init", *(str(a) for a in arguments)])


def client(folder: Path, name: str, output: str, rc: int = 0) -> None:
    (folder / f"{name}.txt").write_text(output)
    (folder / name).write_text(f'#!/bin/sh\n/bin/cat "{folder}/{name}.txt"\nexit {rc}\n')
    (folder / name).chmod(0o755)


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and an empty current folder."""
    folder, here = tmp_path / "bin", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(here)
    return folder


def slurm_clients(folder: Path, gres: str = H200, nodes: int = 4) -> None:
    client(folder, "sinfo", SINFO)
    lines = [GPU_NODE.format(name=f"g{i}", gres=gres, state="MIXED+PLANNED") for i in range(nodes)]
    lines.append(GPU_NODE.format(name="g99", gres=gres, state="IDLE+DRAIN"))
    client(folder, "scontrol", CPU_NODE + "".join(lines))


def test_flags_make_a_spec_that_checks_clean(clients: Path) -> None:
    done = prlc("--model", "qwen3-30b-a3b", "--cluster", "h200-1x8", "--environment", "lookup")
    assert done.exit_code == 0, done.output
    spec = load(RunSpec, "qwen3-30b-a3b-lookup.yaml")
    assert (spec.model, spec.cluster, spec.workload.environment.id) == ("qwen3-30b-a3b", "h200-1x8", "lookup")
    again = CliRunner().invoke(main, ["check", "qwen3-30b-a3b-lookup.yaml"])
    assert again.exit_code == 0
    assert "0 errors" in again.stdout
    assert not Path("cluster.yaml").exists()


@pytest.mark.parametrize("model", ["tiny-moe", "glm-5.1", "gpt-oss-20b", "llama-3.1-8b", "kimi-k2.5"])
def test_the_first_spec_of_a_family_plans(model: str, clients: Path) -> None:
    done = prlc("--model", model, "--cluster", "h200-64x8", "--environment", "verifiers:swe", "-o", "x.yaml")
    assert done.exit_code == 0, done.output


def test_slurm_is_read_by_field_and_what_it_does_not_tell_is_said(clients: Path) -> None:
    slurm_clients(clients)
    done = prlc("--model", "qwen3-30b-a3b", "--environment", "lookup", "--json")
    assert done.exit_code == 0, done.output
    cluster, spec = load(Cluster, "cluster.yaml"), load(RunSpec, "qwen3-30b-a3b-lookup.yaml")
    node = cluster.node
    assert (cluster.launcher, cluster.nodes, node.gpu, node.gpus, node.cpus) == ("slurm", 4, "h200", 8, 192)
    assert (node.memory, node.nvme) == (2000000 << 20, 7000000 << 20)
    assert (spec.slurm.partition, spec.slurm.time) == ("gpu", 12 * 3600)
    said = json.loads(done.stdout)
    assert said["wrote"] == ["cluster.yaml", "qwen3-30b-a3b-lookup.yaml"]
    assert "left out of these, down or drained: 1" in said["read"]
    assert any("inter_bandwidth" in line and "assumed" in line for line in said["not_learned"])
    assert any("inter_bandwidth" in source and "assumed" in source for source in cluster.sources)
    assert said["errors"] == 0


def test_flags_win_over_what_slurm_says_and_sizes_of_other_nodes_are_not_taken(clients: Path) -> None:
    slurm_clients(clients)
    done = prlc("--model", "qwen3-30b-a3b", "--environment", "lookup", "--nodes", 2, "--gpu", "h100")
    assert done.exit_code == 2  # GPUs of an h100 node are not known from h200 nodes
    assert "--gpus-per-node" in done.stderr
    done = prlc(
        "--model", "qwen3-30b-a3b", "--environment", "lookup", "--nodes", 2, "--gpu", "h100", "--gpus-per-node", 8
    )
    assert done.exit_code == 0, done.output
    cluster = load(Cluster, "cluster.yaml")
    assert (cluster.launcher, cluster.node.gpu, cluster.node.cpus, cluster.node.nvme) == ("slurm", "h100", 128, 0)
    assert "cpus 128 a node: assumed" in done.stdout


def test_an_unknown_gpu_is_named_and_asked_for(clients: Path) -> None:
    slurm_clients(clients, gres="gpu:mi300x:8")
    done = prlc("--model", "qwen3-30b-a3b", "--environment", "lookup")
    assert done.exit_code == 2
    assert "not learned: --gpu;" in done.stderr
    assert "'mi300x'" in done.stderr


def test_failing_and_absent_clients_are_said(clients: Path) -> None:
    client(clients, "sinfo", "", rc=1)
    done = prlc("--model", "qwen3-30b-a3b", "--environment", "lookup")
    assert done.exit_code == 2
    assert "sinfo failed" in done.stderr
    assert "nvidia-smi is not on this machine" in done.stderr
    assert not list(Path().iterdir())


def test_a_client_that_hangs_is_given_up_with_its_children(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clients / "sinfo").write_text("#!/bin/sh\n/bin/sleep 60\necho late\n")
    (clients / "sinfo").chmod(0o755)
    monkeypatch.setattr(place, "DEADLINE", 0.3)
    start = time.monotonic()
    assert place.ask("sinfo") == ("", "sinfo has not answered in 0.3 s")
    assert time.monotonic() - start < 20


def test_one_machine_with_gpus_is_read(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_own_size", lambda: {"cpus": 96, "memory": 2 << 40})
    client(clients, "nvidia-smi", "NVIDIA H200\n" * 8)
    done = prlc("--model", "qwen3-30b-a3b", "--environment", "lookup")
    assert done.exit_code == 0, done.output
    cluster = load(Cluster, "cluster.yaml")
    assert (cluster.launcher, cluster.nodes, cluster.node.gpu, cluster.node.gpus) == ("local", 1, "h200", 8)
    assert (cluster.node.cpus, cluster.node.memory) == (96, 2 << 40)
    assert "slurm" not in Path("qwen3-30b-a3b-lookup.yaml").read_text()


def test_nothing_is_overwritten_without_force(clients: Path) -> None:
    words = ("--model", "tiny-moe", "--environment", "lookup", "--gpu", "cpu", "--nodes", 1, "--gpus-per-node", 2)
    Path("cluster.yaml").write_text("mine")
    done = prlc(*words)
    assert done.exit_code == 2
    assert "already there: cluster.yaml" in done.stderr
    assert Path("cluster.yaml").read_text() == "mine"
    assert not Path("tiny-moe-lookup.yaml").exists()
    assert prlc(*words, "--force").exit_code == 0
    assert load(Cluster, "cluster.yaml").node.gpu == "cpu"


def test_paths_are_written_as_the_spec_sees_them(clients: Path) -> None:
    Path("specs").mkdir()
    model = Path("glm-5.1")  # a folder with the name of a catalog entry is meant, not the entry
    model.mkdir()
    config = {**catalog.model("tiny-moe").config, "architectures": ["Qwen3MoeForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config))
    words = ("--environment", "lookup", "--gpu", "cpu", "--nodes", 1, "--gpus-per-node", 2, "-o", "specs/a.yaml")
    done = prlc("--model", "./glm-5.1", *words, "--cluster-file", "mine.yaml")
    assert done.exit_code == 0, done.output
    spec = load(RunSpec, "specs/a.yaml")
    assert (spec.model, spec.cluster) == ("../glm-5.1", "../mine.yaml")


def test_a_model_that_does_not_fit_is_refused_with_its_cure(clients: Path) -> None:
    done = prlc("--model", "glm-5.1", "--cluster", "h200-1x8", "--environment", "lookup", "-o", "x.yaml")
    assert done.exit_code == 1
    assert "error[PRL400]" in done.stderr
    assert "next: prlc check x.yaml" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "glm-5.l", "--cluster", "h200-1x8", "--environment", "x"), "did you mean"),
        (("--cluster", "h200-1x8", "--gpu", "h200"), "--cluster names a cluster"),
        (("--cluster", "h200-1x8"), "--model, --environment"),
        (("--model", "tiny-moe", "--cluster", "h200-1x8", "--environment", "x", "-o", "no/x.yaml"), "no folder no"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str, clients: Path) -> None:
    done = prlc(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_an_unknown_partition_names_those_there_are(clients: Path) -> None:
    slurm_clients(clients)
    done = prlc("--model", "tiny-moe", "--environment", "lookup", "--partition", "gpus")
    assert done.exit_code == 2
    assert "it has cpu, gpu" in done.stderr


def test_a_terminal_is_asked_for_what_is_missing(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prlc.compiler.commands.init.terminal", lambda: True)
    answers = {"Model": "tiny-moe", "Environment": "copy", "Nodes": 1, "GPUs": 2, "Kind": "cpu"}
    asked: list[str] = []

    def prompt(text: str, **_: object) -> object:
        asked.append(text)
        return answers[text.split()[0]]

    monkeypatch.setattr(click, "prompt", prompt)
    done = prlc("-o", "asked.yaml")
    assert done.exit_code == 0, done.output
    assert [text.split()[0] for text in asked] == ["Model", "Environment", "Nodes", "GPUs", "Kind"]
    assert load(RunSpec, "asked.yaml").workload.environment.id == "copy"


def test_in_a_pipe_nothing_is_asked_and_lines_fit_80_columns(tmp_path: Path) -> None:
    words = ("--model", "tiny-moe", "--cluster", "local-cpu", "--environment", "lookup", "-o", "a.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "prlc.compiler.cli", "init", *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    written = (tmp_path / "a.yaml").read_text()
    assert max(map(len, (done.stdout + written).splitlines())) <= 80
    assert "#" in written


def test_names_and_values_that_yaml_would_misread() -> None:
    text = spec_text(
        Start(name="1.5", model="./a: b#c", cluster="no", environment="verifiers:x", max_position=64, slurm=True,
              cpu=False, partition="on")
    )  # fmt: skip
    assert "name: '1.5'" in text
    assert "cluster: 'no'" in text
    assert "partition: 'on'" in text
    assert run_name("///", "") == "run"
    assert len(run_name("m" * 80, "e")) <= 64


def test_gres_and_states() -> None:
    assert slurm.gres("gpu:8") == ("", 8)
    assert slurm.gres("gpu:a100:2,gpu:h100:6(S:0)") == ("h100", 6)
    assert slurm.gres("") == ("", 0)
    broken = "no fields at all\nNodeName=x CPUTot=two RealMemory=1\n"
    assert slurm.nodes(broken) == ()
    line = GPU_NODE.format(name="g", gres=H200, state="DOWN*+DRAIN")
    assert slurm.nodes(line)[0].away
    assert catalog_gpu("nvidia_h100_80gb_hbm3", catalog.names("gpu")) == "h100"
    assert catalog_gpu("gb200", catalog.names("gpu")) is None
