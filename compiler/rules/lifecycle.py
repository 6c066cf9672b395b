"""Texts of the spec that become file names, shell words and #SBATCH lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.forecast.step import forecast
from prlc.compiler.rules.parallel_layout import node_budget
from prlc.compiler.rules.rule import finding, layout_rule, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

UNSAFE = re.compile(r"""[\x00-\x1f\x7f'"`\\${}]""")
PATHS: tuple[tuple[str, ...], ...] = (
    ("name",),
    ("model",),
    ("checkpoint",),
    ("cluster",),
    ("runtime", "venv"),
    ("runtime", "run_dir"),
)
SLURM = ("partition", "account", "qos", "reservation", "constraint", "exclude")
NAME = r"(?!-)[\w.@%+:=/-]+"
NAMES_FORM = re.compile(rf"{NAME}(?:,{NAME})*", re.ASCII)
LIST_FORM = re.compile(r"(?!-)(?:[\w.@%+:=/&|*()\[\]-]|,(?!-))+", re.ASCII)
SHORTEST_JOB, LONGEST_JOB = 600, 365 * 86400  # s
NODE_LOCAL = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/", "/local/")


@spec_rule(
    "PRL361",
    refused={"runtime": {"run_dir": "runs/it's"}},
    accepted={"runtime": {"run_dir": "runs/its"}},
)
def plain_paths(resolved: Resolved) -> Iterator[Diagnostic]:
    """Names and paths have no quote, newline, control character, backslash, dollar sign, backquote or brace.

    Inequality: no character of [control ' " ` \\ $ { }] in name, model, checkpoint, cluster and runtime, in the
    model's own hf_id and in the cluster's NICs and interface
    Source: they become words of scripts and of #SBATCH lines, where {X} is a lookup.
    Cure: another name, or a link to the folder.
    """
    node = resolved.cluster.node
    named: list[tuple[str, tuple[str, ...], object]] = [
        ("hf_id of the model", ("model",), resolved.model.hf_id),
        ("node.interface of the cluster", ("cluster",), node.interface),
        *(("a NIC of the cluster", ("cluster",), nic) for nic in node.nics),
    ]
    for path in PATHS:
        value: object = resolved.spec
        for key in path:
            value = getattr(value, key)
        named.append((".".join(path), path, value))
    for name, path, value in named:
        if isinstance(value, str) and (bad := UNSAFE.search(value)):
            yield finding(
                "PRL361",
                f"{name} has the character {bad[0]!r}, which scripts cannot carry safely",
                resolved.span(path),
                label=f"character {bad.start() + 1} of the value",
                help="another name, or a symbolic link to the folder",
            )


@spec_rule(
    "PRL362",
    refused={"slurm": {"partition": "gpu debug"}},
    accepted={"slurm": {"partition": "gpu,debug", "constraint": "[rack1|rack2]"}},
)
def one_word_slurm_options(resolved: Resolved) -> Iterator[Diagnostic]:
    """A Slurm option is one word.

    Inequality: a name or names between commas, each of letters, digits and _ . @ % + : = / -, none starting with '-';
    constraint and exclude may also have & | * ( ) [ ]
    Source: sbatch splits #SBATCH lines at white space and drops what follows; a '#' starts a comment, and no name
    starts like an option.
    Cure: the name alone; commas between several.
    """
    for key in SLURM:
        value = getattr(resolved.spec.slurm, key)
        form = LIST_FORM if key in ("constraint", "exclude") else NAMES_FORM
        if value is not None and not form.fullmatch(value):
            words = value.split()
            names = [word for word in re.split(r"[^A-Za-z0-9_.-]+", value) if NAMES_FORM.fullmatch(word)]
            several = ",".join(words if all(NAMES_FORM.fullmatch(word) for word in words) else names[:1])
            yield finding(
                "PRL362",
                f"slurm.{key} must be one word: {value!r}",
                resolved.span(("slurm", key)),
                label="becomes one word of an #SBATCH line",
                help=f"{key}: {several}" if several else f"leave slurm.{key} out, or give it a plain name",
            )


@spec_rule(
    "PRL363",
    refused={"cluster": "local-cpu", "model": "tiny-moe", "slurm": {"partition": "gpu"}},
    accepted={"cluster": "h200-1x8", "slurm": {"partition": "gpu"}},
)
def slurm_options_need_slurm(resolved: Resolved) -> Iterator[Diagnostic]:
    """Slurm options are for a Slurm job.

    Inequality: slurm.* said => the launcher is slurm
    Source: run.sh of the local launcher has no #SBATCH line; an option there would do nothing.
    Cure: leave the slurm block out, or target: slurm on a cluster that has it.
    """
    spec = resolved.spec
    launcher = resolved.cluster.launcher if spec.target == "auto" else spec.target
    if launcher == "slurm":
        return
    keys = [key for key in (*SLURM, "time") if getattr(spec.slurm, key) is not None]
    if keys:
        yield finding(
            "PRL363",
            f"slurm.{', slurm.'.join(keys)}: no effect, the run is started on this machine",
            resolved.span(("slurm", keys[0])) if len(keys) == 1 else resolved.key_span(("slurm",)),
            label="no Slurm job",
            help="leave slurm out",
        )


@spec_rule(
    "PRL364",
    refused={"slurm": {"time": "2min"}},
    accepted={"slurm": {"time": "24h"}},
)
def time_limit_leaves_time(resolved: Resolved) -> Iterator[Diagnostic]:
    """The time limit leaves time to start and to stop, and Slurm can write it.

    Inequality: 10 min <= slurm.time <= 365 days
    Source: run.sbatch asks for a signal 120 s before the limit, slurmctld looks at limits every 30 s, and engines
    take minutes to load; a limit below that never trains a step.
    Cure: a time that holds many steps.
    """
    time = resolved.spec.slurm.time
    if time is not None and not SHORTEST_JOB <= time <= LONGEST_JOB:
        yield finding(
            "PRL364",
            "the job would be over before it trains" if time < SHORTEST_JOB else "no partition has such a time limit",
            resolved.span(("slurm", "time")),
            label=f"{time:.0f} s, must be in {SHORTEST_JOB} .. {LONGEST_JOB} s",
            rule="10 min <= slurm.time <= 365 days",
            help="time: 24h",
        )


@spec_rule(
    "PRL368",
    refused={"cluster": "h200-28x8", "runtime": {"run_dir": "/tmp/run"}},
    accepted={"cluster": "h200-28x8", "runtime": {"run_dir": "/shared/runs/one"}},
)
def shared_folders(resolved: Resolved) -> Iterator[Diagnostic]:
    """What all nodes read is on a filesystem that they share.

    Inequality: nodes > 1 => runtime.run_dir, runtime.venv and checkpoint not below /tmp, /var/tmp, /dev/shm, /run
    or /local, on GPU clusters (CPU clusters may be emulated on one machine)
    Source: a node's own folders are empty on the next node: logs vanish, and weights are never seen.
    Cure: a folder on the shared filesystem.
    """
    if node_budget(resolved) == 1 or resolved.gpu.device == "cpu":
        return
    spec = resolved.spec
    for path, value in (
        (("runtime", "run_dir"), spec.runtime.run_dir),
        (("runtime", "venv"), spec.runtime.venv),
        (("checkpoint",), spec.checkpoint or ""),
    ):
        if value.startswith(NODE_LOCAL):
            yield finding(
                "PRL368",
                f"{'.'.join(path)} is a folder of one node, and the run has several",
                resolved.span(path),
                label=f"{value.split('/')[1]} is local to a node",
                rule="nodes > 1 => shared folders",
                help=f"{path[-1]}: a folder on the shared filesystem",
            )


@layout_rule(
    "PRL365",
    refused={"spec": {"slurm": {"time": "10min"}, "trainer": {"checkpoint_every": 1000}}},
    accepted={"spec": {"slurm": {"time": "24h"}, "trainer": {"checkpoint_every": 1}}},
)
def a_checkpoint_before_the_limit(
    resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]
) -> Iterator[Diagnostic]:
    """A job reaches a checkpoint before its time limit (warning).

    Inequality: checkpoint_every x forecast of a step < slurm.time
    Source: a job that is stopped without a complete checkpoint starts again from the beginning.
    Cure: a shorter trainer.checkpoint_every, or a longer slurm.time.
    """
    limit, every = resolved.spec.slurm.time, resolved.spec.trainer.checkpoint_every
    if limit is None:
        return
    step = forecast(resolved.spec, resolved.facts, resolved.gpu, resolved.cluster, layout).expected
    if every * step >= limit:
        yield finding(
            "PRL365",
            "the job ends before its first checkpoint: what it trained is lost",
            resolved.span(("trainer", "checkpoint_every")) or resolved.span(("slurm", "time")),
            label=f"{every} steps of {step:.3g} s = {every * step:.0f} s >= {limit:.0f} s",
            rule="checkpoint_every * step < slurm.time",
            help=f"trainer.checkpoint_every: {max(1, int(limit / step / 4))}",
            severity="warning",
        )
