"""The slurm block of a spec as options of sbatch and srun, and as lines of the bundle."""

from __future__ import annotations

from pathlib import Path

from prlc.compiler.bundle.emit import build
from prlc.compiler.bundle.slurm import extra_option, signal_seconds
from prlc.compiler.plan import plan
from prlc.schema.run import SlurmSpec

BIG = Path(__file__).parents[2] / "examples" / "glm-5.1-swe-28x8-h200.yaml"
BLOCK = """slurm:
  partition: gpu
  time: 24h
  switches: 2
  segment: 4
  comment: paper-2
  mail_user: me@example.org
  mail_type: FAIL,REQUEUE
  requeue: false
  signal_time: 20min
  extra: [--gres-flags=enforce-binding, --nice]
  container: {image: /images/prlc.sqsh, mounts: ["/data:/data:ro", "/scratch:/scratch"]}
"""


def bundle(block: str) -> str:
    text = BIG.read_text("utf-8")
    head = text[: text.index("slurm:")]
    made, found = plan(head + block, str(BIG))
    assert made is not None, found
    return build(made)["run.sbatch"].decode()


def test_every_key_becomes_its_line() -> None:
    lines = bundle(BLOCK).splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert set(options) >= {
        "--partition=gpu", "--time=24:00:00", "--switches=2", "--segment=4", "--comment=paper-2",
        "--mail-user=me@example.org", "--mail-type=FAIL,REQUEUE", "--no-requeue", "--signal=B:USR1@1200",
        "--gres-flags=enforce-binding", "--nice",
    }  # fmt: skip
    assert len({option.partition("=")[0] for option in options}) == len(options), "none is said twice"
    assert not any("scontrol requeue" in line for line in lines)


def test_every_step_runs_in_the_image() -> None:
    text = bundle(BLOCK)
    steps = text.count("srun --overlap")
    assert steps > 5
    assert text.count("--container-image=/images/prlc.sqsh") == steps
    assert text.count("--container-mounts=/data:/data:ro,/scratch:/scratch") == steps
    assert "container" not in bundle("slurm: {partition: gpu, time: 24h}\n")


def test_a_job_requeues_itself_by_default() -> None:
    text = bundle("slurm: {partition: gpu, time: 24h}\n")
    assert "#SBATCH --requeue" in text
    assert 'scontrol requeue "$SLURM_JOB_ID"' in text


def test_the_signal_leaves_two_steps_and_a_minute() -> None:
    assert signal_seconds(SlurmSpec(), 300.0) == 660
    assert signal_seconds(SlurmSpec(), 1.0) == 120, "slurmctld looks every 30 s"
    assert signal_seconds(SlurmSpec(), 1e6) == 65535, "sbatch takes no more"
    assert signal_seconds(SlurmSpec(signal_time=100.0), 300.0) == 100


def test_forms_of_a_further_option() -> None:
    assert extra_option("--nice") == ("nice", "")
    assert extra_option("--nice=100") == ("nice", "100")
    for bad in ("-N3", "nice", "--nice 100", "--nice=a b", "--nice=$(id)", "--nice=", "--Nice", "--nice=\n#SBATCH -N9"):
        assert extra_option(bad) is None, bad
