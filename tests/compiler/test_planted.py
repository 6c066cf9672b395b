"""Every example with one planted fault is refused by a diagnostic that names the planted line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from prlc.compiler.plan import plan

EXAMPLES = Path(__file__).parents[2] / "examples"
# (what is replaced in the example's data, at which key, by what, and the code that must say so)
FAULTS: tuple[tuple[str, tuple[str, ...], object, str], ...] = (
    ("a batch of half groups", ("algorithm", "batch_size"), 13, "PRL301"),
    ("two objectives", ("objective",), {"step_time": "5min", "minimize": "gpus"}, "PRL302"),
    ("a sample beyond the positions", ("sequence", "seq_len"), 99_999_999, "PRL303"),
    ("greedy rollouts", ("algorithm", "temperature"), 0, "PRL306"),
    ("a seed without a generator", ("seed",), -5, "PRL305"),
    ("a tail below its mean", ("workload", "turns"), {"mean": 40, "p95": 2}, "PRL307"),
    ("no turn", ("workload", "turns"), {"mean": 0}, "PRL310"),
    ("a model that is not there", ("model",), "qwen3-31b", "PRL201"),
    ("a cluster that is not there", ("cluster",), "h200-29x8", "PRL202"),
    ("a wrong unit", ("workload", "tool_time"), {"mean": "5 parsecs"}, "PRL105"),
    ("a wrong choice", ("trainer", "precision"), "fp16", "PRL104"),
    ("an unknown key", ("algorithm", "batch_sise"), 8, "PRL102"),
    ("a bound", ("algorithm", "group_size"), 1, "PRL107"),
    ("a warm-up longer than the run", ("trainer", "optimizer"), {"lr": 1e-6, "warmup_steps": 100_000}, "PRL355"),
    ("experts that do not divide", ("trainer", "parallel"), {"ep": 7}, "PRL314"),
    ("heads that do not divide", ("trainer", "parallel"), {"cp": 7}, "PRL317"),
    ("a tensor degree that does not divide", ("inference", "tensor_parallel"), 5, "PRL321"),
    ("more nodes than there are", ("nodes",), 1000, "PRL324"),
    ("too many trainer nodes", ("trainer", "nodes"), 900, "PRL322"),
    ("a data-parallel group of a size without nodes", ("inference", "prefill_nodes"), 3, "PRL323"),
    ("a shell in the venv", ("runtime", "venv"), "$(touch x)", "PRL361"),
    ("two words for Slurm", ("slurm", "partition"), "gpu debug", "PRL362"),
    ("a job without time", ("slurm", "time"), "30s", "PRL364"),
    (
        "a key in the arguments",
        ("workload", "environment"),
        {"id": "lookup", "args": {"password": "hunter2"}},
        "PRL366",
    ),
    ("a limit longer than a sample", ("workload", "max_output_tokens_per_turn"), 99_999_999, "PRL308"),
    ("a wish twice", ("prefer",), ["disaggregate", "disaggregate"], "PRL344"),
)
# slurm options of a local run are refused as what they are
OTHER = {("tiny-moe-cpu", "PRL362"), ("tiny-moe-cpu", "PRL364")}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f[0])
def test_a_planted_fault_is_named_at_its_line(example: Path, fault: tuple[str, tuple[str, ...], object, str]) -> None:
    _, path, value, code = fault
    data = yaml.safe_load(example.read_text())
    place = data
    for key in path[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    place[path[-1]] = value
    text = yaml.safe_dump(data, sort_keys=False)
    filename = str(example)
    made, found = plan(text, filename)
    assert made is None
    errors = [d for d in found if d.severity == "error"]
    if (example.stem, code) in OTHER:
        code = "PRL363"
    named = [d for d in errors if d.code == code]
    assert named, [(d.code, d.message) for d in errors]
    lines = text.splitlines()
    for diagnostic in named:
        assert diagnostic.span is not None
        assert planted(lines, diagnostic.span.line, path), lines[diagnostic.span.line - 1]
        assert any(note.label == "help" and note.text for note in diagnostic.notes)


def planted(lines: list[str], line: int, path: tuple[str, ...]) -> bool:
    """True where the line is that of the planted key, or of what it holds."""
    for start, text in enumerate(lines):
        if text.strip().startswith(f"{path[-1]}:"):
            indent = len(text) - len(text.lstrip())
            end = start + 1
            while end < len(lines) and (
                len(lines[end]) - len(lines[end].lstrip()) > indent or lines[end].startswith(" " * indent + "-")
            ):
                end += 1
            if start < line <= end:
                return True
    return False
