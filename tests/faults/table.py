"""docs/faults.yaml: its rows, whether each proof exists, and docs/faults.md."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from prlc.compiler import explain
from prlc.compiler.rules import LAYOUT_RULES, SPEC_RULES, SpecRule

ROOT = Path(__file__).parents[2]
STAGES = ("plan", "build", "construction", "preflight", "runtime", "open")
GROUPS = {
    "S": "Spec and shapes",
    "L": "Parallel layout",
    "M": "Memory",
    "K": "Kernels",
    "R": "Router replay",
    "P": "Prefill, decode and KV",
    "W": "Weight sync",
    "A": "Asynchrony and staleness",
    "N": "Network and ports",
    "J": "Slurm and life cycle",
}
CONSTRUCTION = "tests/faults/test_construction.py"
LISTS = {
    "no_spec_can_ask_for": "ABSENT",
    "no_command_has": "NEVER",
    "every_command_has": "ALWAYS",
    "no_script_has": "SCRIPT_NEVER",
    "every_batch_script_has": "SCRIPT_ALWAYS",
}
HEAD = """\
# Launch faults

What goes wrong when reinforcement-learning runs are launched, and where prlc catches it: by a rule when it plans
(`plan`), by the checks of a bundle (`build`), because no spec can produce it (`construction`), on the nodes before
weights load (`preflight`), or while it runs, by surviving or by stopping with a cause (`runtime`). `open` rows are
caught by nothing of ours yet. The last column is what proves it: a diagnostic (its page holds an example that is
refused and one that passes), a test, or a probe. Made by `python -m tests.faults.update` from `faults.yaml`.
"""


@dataclass(frozen=True)
class Row:
    """One fault. `by` are proofs: PRLnnn, C:test[parameter], T:file::test, P:probe."""

    id: str
    fault: str
    stage: str
    by: tuple[str, ...]


@cache
def rows() -> tuple[Row, ...]:
    """The table in its order."""
    data = yaml.safe_load((ROOT / "docs" / "faults.yaml").read_text())["rows"]
    return tuple(Row(r["id"], r["fault"], r["stage"], tuple(r["by"])) for r in data)


def coverage() -> tuple[int, int, Counter[str]]:
    """(caught at any stage, all rows, rows of each stage)."""
    counts = Counter(row.stage for row in rows())
    return len(rows()) - counts["open"], len(rows()), counts


def summary() -> str:
    """One line for people."""
    caught, total, counts = coverage()
    early = sum(counts[stage] for stage in STAGES[:4])
    parts = ", ".join(f"{stage} {counts[stage]}" for stage in STAGES if counts[stage])
    return (
        f"launch faults: {caught} of {total} caught ({100 * caught / total:.1f} %), "
        f"{early} before weights load; {parts}"
    )


def problem(proof: str) -> str:
    """What is wrong with a proof; '' where it exists."""
    if proof.startswith("PRL"):
        return "" if proof in explain.codes() else f"no diagnostic {proof}"
    kind, _, name = proof.partition(":")
    if kind == "T":
        path, _, test = name.partition("::")
        return "" if test in functions(path) else f"no test {name}"
    if kind == "P":
        known = {file.stem for file in (ROOT / "runtime" / "preflight").glob("*.py")} | probes()
        return "" if name in known else f"no probe {name}"
    test, _, parameter = name.partition("[")
    if f"test_{test}" not in functions(CONSTRUCTION):
        return f"no test {test} in {CONSTRUCTION}"
    if parameter and parameter.removesuffix("]") not in parameters(test):
        return f"{test} is not run with {parameter.removesuffix(']')!r}"
    return ""


@cache
def functions(path: str) -> frozenset[str]:
    """Names of the functions of a file of tests."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def probes() -> frozenset[str]:
    """Names that the preflight gives its probes."""
    file = ROOT / "runtime" / "preflight" / "__main__.py"
    return frozenset(re.findall(r'^\s+\("([a-z_]+)", ', file.read_text(), re.M)) if file.is_file() else frozenset()


@cache
def parameters(test: str) -> frozenset[str]:
    """What a parametrized test of construction is run with; `kind: text` where it is run by kind of role."""
    tree = ast.parse((ROOT / CONSTRUCTION).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == LISTS.get(test):
            value = ast.literal_eval(node.value)
            if isinstance(value, dict):
                return frozenset(f"{kind}: {text}" for kind, texts in value.items() for text in texts)
            return frozenset(value)
    return frozenset()


def shown(proof: str) -> str:
    """A proof as Markdown."""
    if proof.startswith("PRL"):
        return f"[{proof}](diagnostics/{proof}.md)"
    kind, _, name = proof.partition(":")
    if kind == "P":
        return f"preflight `{name}`"
    if kind == "T":
        path, _, test = name.partition("::")
        return f"[{test.removeprefix('test_')}](../{path})"
    test, _, parameter = name.partition("[")
    words = test.replace("_", " ") + (f" `{parameter.removesuffix(']').strip()}`" if parameter else "")
    return f"[{words}](../{CONSTRUCTION})"


def example(row: Row) -> str:
    """A spec fragment that is refused, from the first rule among the proofs; '' where there is none."""
    for proof in row.by:
        for rule in (*SPEC_RULES, *LAYOUT_RULES):
            if rule.code == proof and isinstance(rule, SpecRule):
                text = yaml.safe_dump(dict(rule.refused), default_flow_style=True, sort_keys=False, width=10_000)
                return f"`{text.strip()}`"
    return ""


def document() -> str:
    """docs/faults.md."""
    lines = [HEAD, f"{summary()[0].upper()}{summary()[1:]}.", ""]
    for letter, title in GROUPS.items():
        lines += [f"## {title}", "", "| | fault | stage | example | proof |", "| --- | --- | --- | --- | --- |"]
        for row in rows():
            if row.id[0] == letter:
                proofs = ", ".join(map(shown, row.by))
                lines.append(f"| {row.id} | {row.fault} | {row.stage} | {example(row)} | {proofs} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
