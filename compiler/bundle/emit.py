"""Plan to bundle: the same plan gives the same bytes, on any machine, on any day."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prlc.schema.codec import decode, dump, encode
from prlc.schema.plan import Launch, Plan
from prlc.templates import PLACEHOLDER, render, sh

MANIFEST = "manifest.json"
EXECUTABLE = (".sh", ".sbatch")
CHECKS = {
    "preflight": "each node looks at itself before any weights are read",
    "collectives": "every rank reaches every other, inside a node and across",
}
FIXED = ("BUNDLE", "RUN_DIR", "INDEX")


class NotABundle(ValueError):
    """A folder that is in the way, or is not what it should be."""


@dataclass(frozen=True)
class Step:
    """How the launcher starts one role: an srun step, or processes on this machine."""

    role: str
    layout: str
    nodes: str
    node_count: int
    tasks: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    indexes: tuple[int, ...]
    options: tuple[str, ...] = ()  # of srun
    deadline: int = 0  # s
    alone: bool = False  # ends before the next step begins
    first: bool = False  # of those that go on together, each under its agent


def canonical(value: Any) -> bytes:
    """JSON bytes of a document: keys in declaration order, one line a value, a newline at the end."""
    document = encode(decode(type(value), encode(value)))  # 1 and 1.0 in a float field are the same document
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def build(plan: Plan) -> dict[str, bytes]:
    """Every file of the bundle by its path. Raises ValueError for a placeholder that nothing fills."""
    target = plan.cluster.target
    script = "run.sbatch" if target == "slurm" else "run.sh"
    layouts = {row.role: _line(row.layout) for row in plan.table}
    checks = [replace(_step(launch, CHECKS[launch.role], plan.slurm.step), alone=True) for launch in plan.checks]
    roles = [_step(launch, layouts.get(launch.role, ""), plan.slurm.step) for launch in plan.launches]
    steps = [*checks, replace(roles[0], first=True), *roles[1:]]
    texts = {
        "README.md": render("README.md.j2", plan=plan, target=target),
        script: render(
            "slurm/run.sbatch.j2" if target == "slurm" else "local/run.sh.j2",
            plan=plan, target=target, steps=steps, options=_options(plan),
            requeue=target == "slurm" and plan.slurm.requeue, signal_seconds=plan.slurm.signal_seconds,
        ),
        "config/topology.yaml": dump(plan.topology),
        "config/trainer.yaml": dump(plan.trainer),
        "config/orchestrator.yaml": dump(plan.orchestrator),
        "spec.yaml": plan.spec_text,
    }  # fmt: skip
    if plan.preflight is not None:
        texts["config/preflight.yaml"] = dump(plan.preflight)
    for launch in (*plan.checks, *plan.launches):
        layout = CHECKS.get(launch.role) or layouts.get(launch.role, "")
        texts[f"roles/{launch.role}.sh"] = _role(launch, layout, script, supervised=launch in plan.launches)
    files = {name: text.encode() for name, text in texts.items()} | {"plan.json": canonical(plan)}
    files = {name: files[name] for name in sorted(files)}
    manifest = {
        "format": "prlc.bundle/1",
        "name": plan.name,
        "compiler": plan.compiler,
        "spec_sha256": plan.spec_sha256,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    files[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files


def _line(text: str) -> str:
    return " ".join(text.split())


def _step(launch: Launch, layout: str, options: tuple[str, ...]) -> Step:
    tasks = len(launch.nodes) * launch.tasks_per_node
    first, last = launch.nodes[0], launch.nodes[-1]
    contiguous = len(launch.nodes) > 1 and launch.nodes == tuple(range(first, last + 1))
    return Step(
        role=launch.role,
        layout=layout,
        nodes=f"{{{first}..{last}}}" if contiguous else " ".join(map(str, launch.nodes)),
        node_count=len(launch.nodes),
        tasks=tasks,
        tasks_per_node=launch.tasks_per_node,
        cpus_per_task=launch.cpus_per_task,
        gpus_per_node=launch.gpus_per_task * launch.tasks_per_node,
        indexes=tuple(range(tasks)),
        options=options,
        deadline=launch.deadline,
    )


def _options(plan: Plan) -> list[tuple[str, str]]:
    """#SBATCH lines: the plan's, then what every job of prlc needs unless the plan says otherwise."""
    options = list(plan.slurm.options)
    needed = {
        "job-name": plan.name,
        "nodes": str(plan.topology.nodes),
        "output": "%x-%j.out",
        "open-mode": "append",  # a requeued job must not truncate its log
        "signal": f"B:USR1@{plan.slurm.signal_seconds}",  # s before the time limit, to the batch shell
        "requeue" if plan.slurm.requeue else "no-requeue": "",
    }
    given = {name for name, _ in options}
    options += [(name, value) for name, value in needed.items() if name not in given]
    for name, value in options:
        if any(character.isspace() for character in name + value):
            raise ValueError(f"slurm option --{name}={value!r}: no white space is allowed")
    return options


def _role(launch: Launch, layout: str, script: str, supervised: bool) -> str:
    tables = (*(table.name for table in launch.tables), *FIXED)
    words = [v.value for v in launch.environment] + list(launch.command) + [w for f in launch.flags for w in f]
    used = {match[1] for word in words for match in PLACEHOLDER.finditer(word)}
    return render(
        "roles/role.sh.j2",
        launch=_used_tables(launch, used),
        layout=layout,
        script=script,
        supervised=supervised,
        tables=tables,
        needs_nodes=any(name.startswith("NODE_") or name.endswith("ADDRESS") for name in used),
        command=" ".join(sh(word, tables) for word in launch.command),
        flags=[" ".join(sh(word, tables) for word in flag) for flag in launch.flags],
    )


def _used_tables(launch: Launch, used: set[str]) -> Launch:
    """Without the tables that nothing looks up: shellcheck would call them unused, and so would a reader."""
    by_address = {"NODE" if n == "ADDRESS" else f"{n[:-8]}_NODE" for n in used if n.endswith("ADDRESS")}
    kept = tuple(table for table in launch.tables if table.name in used | by_address)
    return Launch(**{**vars(launch), "tables": kept})


def write(files: dict[str, bytes], out: Path) -> None:
    """Write a bundle; an older one at `out` is replaced whole. Raises OSError, NotABundle (other folder)."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MANIFEST).is_file())):
        raise NotABundle(f"{out} exists and is no bundle: choose another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for name, content in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if name.endswith(EXECUTABLE) else 0o644)
        partial.chmod(0o755)
        if out.exists():
            problems = [p for p in verify(out) if p.startswith("not in the manifest")]
            if problems:
                raise NotABundle(f"{out} holds more than a bundle: {problems[0]}")
            shutil.rmtree(out)
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def verify(folder: Path) -> list[str]:
    """What differs from what the compiler emitted, in words; empty when nothing does. Raises NotABundle."""
    files = _manifest(folder)["files"]
    problems = []
    for name, digest in files.items():
        path = Path(folder) / name
        if not path.is_file():
            problems.append(f"missing: {name}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            problems.append(f"changed: {name}")
    present = {str(p.relative_to(folder)) for p in sorted(Path(folder).rglob("*")) if p.is_file()}
    problems += [f"not in the manifest: {name}" for name in sorted(present - {*files, MANIFEST})]
    return problems


def left_by_a_job(problem: str) -> bool:
    """True for what a started bundle leaves beside its files: the job's output, and runs/ where it is the default."""
    name = problem.removeprefix("not in the manifest: ")
    return name != problem and (name.startswith("runs/") or ("/" not in name and name.endswith(".out")))


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotABundle(f"{folder} is no bundle: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise NotABundle(f"{folder} is no bundle: {MANIFEST} lists no files")
    return manifest


def diff(a: Path, b: Path) -> list[str]:
    """What two plans (plan.json) or bundles differ in, one line a value. Raises NotABundle."""
    return _differences("", _plan_document(a), _plan_document(b))


def file_differences(a: Path, b: Path) -> list[str]:
    """Names of the files in which two bundles differ, as they lie there. Raises NotABundle."""
    names = sorted({*_manifest(a)["files"], *_manifest(b)["files"]})
    contents = [
        [p.read_bytes() if (p := Path(folder) / name).is_file() else None for name in names] for folder in (a, b)
    ]
    return [name for name, one, other in zip(names, *contents, strict=True) if one != other]


def _plan_document(path: Path) -> Any:
    file = Path(path) / "plan.json" if Path(path).is_dir() else Path(path)
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotABundle(f"{path} is neither a bundle nor a plan: {error}") from error


def _differences(path: str, a: Any, b: Any) -> list[str]:
    if a == b or path in ("spec_sha256", "spec_text"):
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(key for key in b if key not in a)]
        return [line for key in keys for line in _differences(f"{path}.{key}".lstrip("."), a.get(key), b.get(key))]
    if isinstance(a, list) and isinstance(b, list):
        label = [_label(x, i) for i, x in enumerate(a)], [_label(x, i) for i, x in enumerate(b)]
        if len(set(label[0])) == len(a) and len(set(label[1])) == len(b):
            left, right = dict(zip(label[0], a, strict=True)), dict(zip(label[1], b, strict=True))
            keys = [*left, *(key for key in right if key not in left)]
            return [line for k in keys for line in _differences(f"{path}[{k}]", left.get(k), right.get(k))]
    if a is None:
        return [f"{path}: new: {_short(b)}"]
    if b is None:
        return [f"{path}: gone: {_short(a)}"]
    return [f"{path}: {_short(a)} became {_short(b)}"]


def _label(item: Any, position: int) -> str:
    """What people call an item of a list: its path, its role, its name, else its position."""
    if isinstance(item, dict):
        name = item.get("path") or item.get("name") or item.get("what") or item.get("role")
        if isinstance(name, str):
            return f"{name}/{item['resource']}" if "resource" in item else name
    if isinstance(item, list) and item and isinstance(item[0], str) and item[0].startswith("-"):
        return item[0]
    return str(position)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
