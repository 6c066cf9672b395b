"""The spec's slurm block as options of sbatch and srun."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prlc.schema.plan import SlurmOptions

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.run import SlurmSpec

NAMED = (
    "partition", "account", "qos", "reservation", "constraint", "exclude", "switches", "segment", "comment",
    "mail_user", "mail_type",
)  # fmt: skip
# Options that change neither where the plan's processes run nor how the job lives; values are one word.
EXTRA = (
    "acctg-freq", "bb", "begin", "clusters", "contiguous", "cpu-freq", "deadline", "delay-boot", "dependency",
    "gpu-freq", "gres-flags", "hint", "licenses", "mem", "mem-per-cpu", "mem-per-gpu", "network", "nice", "power",
    "prefer", "priority", "profile", "tmp", "wckey",
)  # fmt: skip
FORM = re.compile(r"--([a-z][a-z-]*)(?:=([A-Za-z0-9][A-Za-z0-9_.,:@%+/\[\]|&*=-]*))?")
SAVE_MARGIN = 30.0  # s between the end of the trainer's grace and the time limit
LEAST_SIGNAL = 120.0  # s before the time limit; slurmctld looks at limits every 30 s


def extra_option(line: str) -> tuple[str, str] | None:
    """(name, value) of a further #SBATCH option, or None where it has another form."""
    match = FORM.fullmatch(line)
    return (match[1], match[2] or "") if match else None


def signal_seconds(spec: SlurmSpec, step: float) -> int:
    """Seconds before the time limit at which the trainer must begin to save; `step` is the forecast step, s.

    A step that has just begun is finished first, then saved: two steps and a minute, at least LEAST_SIGNAL, at most
    65535 (the largest that sbatch takes).
    """
    asked = max(LEAST_SIGNAL, 2 * step + 60) if spec.signal_time == "auto" else float(spec.signal_time)
    return min(65535, round(asked))


def slurm_options(resolved: Resolved, step: float) -> SlurmOptions:
    """Options of the batch job and of its steps. `step` is the forecast step in seconds."""
    slurm, cluster = resolved.spec.slurm, resolved.cluster
    found = [(name.replace("_", "-"), str(value)) for name in NAMED if (value := getattr(slurm, name)) is not None]
    if slurm.time is not None:
        minutes = max(1, round(slurm.time / 60))
        found.append(("time", f"{minutes // 60:02d}:{minutes % 60:02d}:00"))
    if resolved.gpu.device == "cuda":
        found += [("gpus-per-node", str(cluster.node.gpus)), ("exclusive", "")]
    found += [option for line in slurm.extra if (option := extra_option(line))]
    seconds = signal_seconds(slurm, step)
    found += [("signal", f"B:USR1@{seconds}"), ("requeue" if slurm.requeue else "no-requeue", "")]
    step_options: tuple[str, ...] = ()
    if slurm.container is not None:
        step_options = (f"--container-image={slurm.container.image}", "--no-container-mount-home")
        if slurm.container.mounts:
            step_options += (f"--container-mounts={','.join(slurm.container.mounts)}",)
    return SlurmOptions(options=tuple(found), requeue=slurm.requeue, signal_seconds=seconds, step=step_options)
