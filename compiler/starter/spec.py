"""A short run spec with comments: what a person changes first, and nothing that prlc derives."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from prlc.schema.codec import format_quantity

DAY = 24 * 3600.0  # s
SEQ_LEN = 16384  # tokens


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a first spec is made from. `model` and `cluster` are written as they are: names, or paths from the spec."""

    name: str
    model: str
    cluster: str
    environment: str
    max_position: int  # longest sequence of the model, tokens
    slurm: bool
    cpu: bool
    partition: str | None = None
    time_limit: float | None = None  # of the partition, s


def spec_text(start: Start) -> str:
    """YAML of a run spec. Its workload is a round figure for short tool use: the one thing that only a person knows."""
    seq_len = min(SEQ_LEN, start.max_position)
    turns = 4
    prompt = min(300, max(1, seq_len // 64))  # so that the turns of a rollout fit into seq_len
    output = min(600, max(1, seq_len // 32))
    return f"""\
# A run of prlc. `prlc plan` shows what it becomes, `prlc explain` any finding.
# What is not written is auto: derived, and in the plan with its reason.
name: {scalar(start.name)}
# a name of `prlc catalog list`, or a folder with a Hugging Face config.json
model: {scalar(start.model)}
# a name of `prlc catalog list`, or a cluster file
cluster: {scalar(start.cluster)}
# or {{step_time: 5min}}: the fewest GPUs whose step takes at most this long
objective: {{minimize: step_time}}
algorithm:
  # rollouts of a step; group_size rollouts share a task and are compared
  batch_size: {64 if start.cpu else 128}
  group_size: 8
  # policy versions that a trained rollout may be behind
  max_off_policy_steps: 4
# longest sample, prompt and output, in tokens
sequence: {{seq_len: {seq_len}}}
# What a rollout looks like. PUT YOUR OWN FIGURES HERE: these are round ones,
# and forecast and split of nodes rest on them. p95 may stand beside a mean.
workload:
  environment:
    # arithmetic, copy, lookup, or verifiers:TASKSET
    id: {scalar(start.environment)}
  turns: {{mean: {turns}}}
  new_tokens_per_turn: {{mean: {prompt}}}
  output_tokens_per_turn: {{mean: {output}}}
  tool_time: {{mean: 100ms}}
trainer:
  precision: {"fp32" if start.cpu else "bf16"}
  optimizer: {{lr: 1.0e-6}}
{_slurm(start)}# an existing virtual environment with prlc's runtime, seen by every node
runtime: {{venv: .venv}}
"""


def _slurm(start: Start) -> str:
    if not start.slurm:
        return ""
    seconds = min(start.time_limit or DAY, DAY)
    where = f"  partition: {scalar(start.partition)}\n" if start.partition else "  # partition: gpu\n"
    return f"slurm:\n{where}  # account: your-account\n  time: {format_quantity(seconds, 'seconds')}\n"


def scalar(value: str) -> str:
    """A string as one YAML scalar on one line, quoted where it must be.

    >>> scalar("glm-5.1"), scalar("1.5"), scalar("a: b")
    ('glm-5.1', "'1.5'", "'a: b'")
    """
    return str(yaml.safe_dump(value, width=10**6, allow_unicode=True)).splitlines()[0]


def run_name(*parts: str) -> str:
    """A name that a run may have, from free text: at most 64 of A-Z a-z 0-9 . _ -, a letter or digit first.

    >>> run_name("qwen3-8b", "verifiers:math env")
    'qwen3-8b-verifiers-math-env'
    """
    joined = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).lstrip("._-")[:64].rstrip("._-")
    return joined or "run"
