"""Strings of a spec, a cluster file or a model file never reach a shell unquoted.

Every string goes through every text of a spec. Most are refused, with a diagnostic; of what passes, bundles are built
with as many strings at once as there are texts, and every script is run under bash with stand-ins for the programs.
"""

from __future__ import annotations

import copy
import os
import subprocess
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prlc.compiler.bundle.emit import build, write
from prlc.compiler.plan import plan
from prlc.compiler.resolve import resolve
from prlc.compiler.rules import SPEC_RULES
from prlc.schema import positions
from prlc.schema.run import RunSpec

from tests.shell.strings import CANARY, STRINGS

ROOT = Path(__file__).parents[2]
EXAMPLES = {"slurm": ROOT / "examples" / "tiny-moe-slurm-3.yaml", "local": ROOT / "examples" / "tiny-moe-cpu.yaml"}
Place = tuple[str | int, ...]
STANDINS = {
    "python": 'case "$*" in *agent.attempt*) mkdir -p "$PRLC_RUN_DIR/attempts/1"; echo 1 ;; esac',
    "scontrol": "printf 'a\\nb\\nc\\n'",
    "getent": "echo 127.0.0.1 x",
    "srun": ":",
    "timeout": ":",
    "sleep": ":",
}


def places(kind: Any = RunSpec, path: Place = ()) -> Iterator[Place]:
    """Where a spec holds free text; of a list its first item, of a free mapping a key and a value."""
    for name, inner in typing.get_type_hints(kind).items():
        options = [o for o in (inner, *typing.get_args(inner)) if o is not type(None)]
        for option in options:
            if hasattr(option, "__dataclass_fields__"):
                yield from places(option, (*path, name))
            elif option is str and typing.get_origin(inner) not in (tuple, dict):
                yield (*path, name)
        if typing.get_origin(inner) is tuple and typing.get_args(inner)[0] is str:
            yield (*path, name, 0)
        if typing.get_origin(inner) is dict:
            yield (*path, name, "value")
            yield (*path, name, "KEY")


PLACES = sorted(set(places()), key=str)


def test_texts_of_a_spec_are_found() -> None:
    assert len(STRINGS) == len(set(STRINGS)) == 200
    found = {".".join(map(str, place)) for place in PLACES}
    assert {"name", "checkpoint", "slurm.partition", "slurm.extra.0", "slurm.container.image", "runtime.run_dir",
            "workload.environment.args.value"} <= found  # fmt: skip
    assert len(found) >= 18


def put(data: dict[str, Any], place: Place, text: str) -> None:
    """Set a text in a spec; `KEY` makes it a key, an index the only item of a list."""
    at: Any = data
    for key in place[:-1]:
        if isinstance(place[place.index(key) + 1], int):
            at[key] = [text]
            return
        at = at.setdefault(key, {})
    if place[:2] == ("slurm", "container") and place[-1] != "image":
        at.setdefault("image", "/images/a.sqsh")
    if place[-1] == "KEY":
        at[text] = "x"
    else:
        at[place[-1]] = text


def base(kind: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(EXAMPLES[kind].read_text())
    if kind == "slurm":
        data["cluster"] = str(ROOT / "examples" / "clusters" / "cpu-3.yaml")
    return data


def text_of(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def refused(data: dict[str, Any], texts: dict[Place, str]) -> set[Place]:
    """The places that a diagnostic points at; every error must point at one. Never a traceback."""
    text = text_of(data)
    resolved, found = resolve(text, "run.yaml")
    if resolved is not None:
        found = [d for rule in SPEC_RULES for d in rule(resolved)]
    errors = [d for d in found if d.severity == "error"]
    assert resolved is not None or errors
    document = positions.load(text, "run.yaml")
    at = {(span.line, span.col): path for path, span in (*document.value_spans.items(), *document.key_spans.items())}
    named = set()
    for error in errors:
        assert error.span is not None, error.message
        path = at[(error.span.line, error.span.col)]
        meant = {p for p in texts if (*p[:-1], texts[p] if p[-1] == "KEY" else p[-1])[: len(path)] == path}
        assert meant, (error.code, error.message, path)
        named |= meant
    return named


def run(bundle: Path, folder: Path) -> None:
    """Every script of a bundle under bash, with the spec's own venv and folder, and with a venv that is there."""
    stand = folder / "venv" / "bin"
    stand.mkdir(parents=True, exist_ok=True)
    for name, body in STANDINS.items():
        (stand / name).write_text(f"#!/bin/bash\n{body}\n")
        (stand / name).chmod(0o755)
    (folder / "nodes").write_text("127.0.0.1\n" * 3)
    lines = ['for role in "$1"/roles/*.sh; do bash "$role" 0; done', 'for s in "$1"/run.*; do',
             '  env -u PRLC_VENV -u PRLC_RUN_DIR bash "$s"; env -u PRLC_RUN_DIR bash "$s"; done']  # fmt: skip
    subprocess.run(
        ["bash", "-c", "\n".join(lines), "run", str(bundle)],
        cwd=folder,
        env={
            "PATH": f"{stand}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PRLC_NODES_FILE": str(folder / "nodes"),
            "PRLC_BUNDLE": str(bundle),
            "PRLC_RUN_DIR": str(folder / "run"),
            "PRLC_VENV": str(folder / "venv"),
            "SLURM_SUBMIT_DIR": str(bundle),
            "SLURM_JOB_ID": "1",
            "SLURM_JOB_NODELIST": "a",
            "SLURM_PROCID": "0",
        },
        capture_output=True,
        timeout=60,
        check=False,
    )


def built(kind: str, texts: dict[Place, str], folder: Path) -> set[Place]:
    """Build with all of the texts that pass, run it, and say which passed."""
    passing = dict(texts)
    while True:
        data = base(kind)
        for place, text in passing.items():
            put(data, place, text)
        out = refused(data, passing)
        if not out:
            break
        passing = {place: text for place, text in passing.items() if place not in out}
    made, found = plan(text_of(data), "run.yaml")
    assert made is not None, [(d.code, d.message) for d in found if d.severity == "error"]
    write(build(made), folder / "bundle")
    run(folder / "bundle", folder)
    return set(passing)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "every"), [("slurm", 1), ("local", 10)])
def test_nothing_fires(kind: str, every: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    places = [p for p in PLACES if kind == "slurm" or p[0] != "slurm"]
    passed: Counter[Place] = Counter()
    for number, string in enumerate(STRINGS[::every]):
        text = string.replace(CANARY, str(canary))
        passed.update(built(kind, dict.fromkeys(places, text), tmp_path / str(number)))
        assert not canary.exists(), text
    # what a spec may hold: arguments of an environment are free text, and reach files alone
    assert passed[("workload", "environment", "args", "value")] == len(STRINGS[::every])
    assert passed[("workload", "environment", "args", "KEY")] == len(STRINGS[::every])
    assert passed[("name",)] == 0
    assert passed[("checkpoint",)] > 0 or every > 1


def test_nothing_of_a_cluster_or_model_file_fires(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    cluster = yaml.safe_load((ROOT / "examples" / "clusters" / "cpu-3.yaml").read_text())
    model = yaml.safe_load((ROOT / "catalog" / "models" / "tiny-moe.yaml").read_text())
    tried = 0
    for number, string in enumerate(STRINGS[::16]):
        text = string.replace(CANARY, str(canary))
        for where in ("cluster.name", "cluster.node.interface", "cluster.sources", "model.hf_id", "model.sources"):
            mine, other = copy.deepcopy(cluster), copy.deepcopy(model)
            {
                "cluster.name": lambda t=text, c=mine: c.update(name=t),
                "cluster.node.interface": lambda t=text, c=mine: c["node"].update(interface=t),
                "cluster.sources": lambda t=text, c=mine: c.update(sources=[t]),
                "model.hf_id": lambda t=text, m=other: m.update(hf_id=t),
                "model.sources": lambda t=text, m=other: m.update(sources=[t]),
            }[where]()
            folder = tmp_path / f"{number}-{where}"
            folder.mkdir()
            (folder / "cluster.yaml").write_text(text_of(mine))
            (folder / "model.yaml").write_text(text_of(other))
            data = base("slurm") | {"cluster": "cluster.yaml", "model": "model.yaml"}
            if where == "model.hf_id":
                data.pop("checkpoint")
            made, found = plan(text_of(data), str(folder / "run.yaml"))
            if made is None:
                assert any(d.severity == "error" for d in found)
                continue
            tried += 1
            write(build(made), folder / "bundle")
            run(folder / "bundle", folder)
            assert not canary.exists(), (where, text)
    assert tried > 8


def test_the_canary_sees_a_shell_that_does_not_quote(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    bundle = tmp_path / "bundle"
    (bundle / "roles").mkdir(parents=True)
    (bundle / "roles" / "bad.sh").write_text(f"echo $(touch {canary})\n")
    run(bundle, tmp_path)
    assert canary.exists()
