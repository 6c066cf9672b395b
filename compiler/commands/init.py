"""`prlc init`: a first run spec, and a cluster file from what Slurm and the machine tell."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from prlc.catalog import Cluster
    from prlc.compiler.starter.place import Learned

FILE = click.Path(dir_okay=False, path_type=Path)
LIKE = {"cpu": "local-cpu"}  # catalog cluster that unknown values are taken from; the others: h200-1x8


@click.command()
@click.option("--model", metavar="NAME|PATH", help="Catalog name, or a folder with a config.json.")
@click.option("--cluster", metavar="NAME|FILE", help="Catalog name or cluster file; else a cluster file is written.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes, for a cluster file.")
@click.option("--gpus-per-node", "gpus", type=click.IntRange(1), help="GPUs of a node.")
@click.option("--gpu", metavar="NAME", help="Kind of GPU: a catalog name, or cpu.")
@click.option("--partition", help="Slurm partition; else the default one.")
@click.option("--environment", metavar="ID", help="arithmetic, copy, lookup or verifiers:TASKSET.")
@click.option("--name", help="Name of the run; else of model and environment.")
@click.option("-o", "--output", type=FILE, help="Spec to write; else NAME.yaml.")
@click.option("--cluster-file", type=FILE, help="Cluster file to write; else cluster.yaml beside the spec.")
@click.option("--force", is_flag=True, help="Overwrite files.")
@click.option("--json", "as_json", is_flag=True, help="What was written and learned, for machines.")
def init(
    model: str | None, cluster: str | None, nodes: int | None, gpus: int | None, gpu: str | None,
    partition: str | None, environment: str | None, name: str | None, output: Path | None,
    cluster_file: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a short commented run spec, and the cluster file that it names.

    On a terminal, what no option says is asked for. Without --cluster, Slurm (sinfo, scontrol) and nvidia-smi are
    read where they are; what could not be learned is said. The spec is checked when it is written: exit code 1
    where it does not plan.
    """
    from prlc.catalog import CatalogError
    from prlc.compiler.starter.place import Learned, UnknownPartition, completed, learn
    from prlc.compiler.starter.spec import Start, run_name, spec_text

    if cluster and (nodes or gpus or gpu or cluster_file):
        raise click.UsageError("--cluster names a cluster: leave out --nodes, --gpus-per-node, --gpu, --cluster-file")
    known = Learned(nodes=nodes, gpus=gpus, gpu=gpu, partition=partition)
    try:
        learned = known if cluster else completed(known, learn(partition))
    except UnknownPartition as error:
        raise click.UsageError(str(error)) from error
    try:
        answers = _answers({"model": model, "environment": environment}, learned, bool(cluster))
        learned = replace(learned, **{key: answers[key] for key in ("nodes", "gpus", "gpu") if key in answers})
        name = name or run_name(Path(answers["model"]).name, answers["environment"])
        output = output or Path(f"{name}.yaml")
        made = None if cluster else _cluster(learned)
        file = None if cluster else cluster_file or output.parent / "cluster.yaml"
        place = _named(cluster, "cluster", output.parent) if cluster else _beside(str(file), output.parent)
        target = _read_cluster(cluster) if cluster else made[0]  # type: ignore[index]
        start = Start(
            name=name, model=_named(answers["model"], "model", output.parent), cluster=place,
            environment=answers["environment"], max_position=_longest(answers["model"]),
            slurm=target.launcher == "slurm", cpu=target.node.gpu == "cpu",
            partition=learned.partition, time_limit=learned.time_limit,
        )  # fmt: skip
    except CatalogError as error:
        raise click.UsageError(f"{error.message}\n{error.help}".rstrip()) from error
    wanted: list[tuple[Path, str]] = [(output, spec_text(start))]
    if made is not None and file is not None:
        from prlc.compiler.starter.cluster import cluster_text

        wanted.insert(0, (file, cluster_text(made[0])))
    _write(wanted, force)
    unknown = made[1] if made else ()
    _finish(output, [str(path) for path, _ in wanted], learned.notes, unknown, as_json)


def terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _answers(said: dict[str, str | None], learned: Learned, has_cluster: bool) -> dict[str, Any]:
    """Every value, asked for on a terminal. Raises click.UsageError with all that is missing elsewhere."""
    values: dict[str, Any] = dict(said)
    if not has_cluster:
        values |= {"nodes": learned.nodes, "gpus": learned.gpus, "gpu": learned.gpu}
    missing = [key for key, value in values.items() if not value]
    if not missing:
        return values
    if not terminal():
        options = ", ".join({"gpus": "--gpus-per-node"}.get(key, f"--{key}") for key in missing)
        cure = "" if has_cluster else "; --cluster NAME stands for nodes and GPUs"
        notes = "".join(f"\n  {note}" for note in learned.notes)
        raise click.UsageError(f"not stated and not learned: {options}{cure}{notes}")
    questions: dict[str, tuple[str, Any, Any]] = {
        "model": ("Model (catalog name or folder)", None, str),
        "environment": ("Environment (arithmetic, copy, lookup or verifiers:TASKSET)", "lookup", str),
        "nodes": ("Nodes", 1, click.IntRange(1)),
        "gpus": ("GPUs a node", 8, click.IntRange(1)),
        "gpu": ("Kind of GPU (catalog name, or cpu)", None, str),
    }
    for key in missing:
        text, default, kind = questions[key]
        values[key] = click.prompt(text, default=default, type=kind, err=True)
    return values


def _cluster(learned: Learned) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a new file and what could not be learned. Raises CatalogError."""
    from prlc import catalog
    from prlc.compiler.starter.cluster import Known, cluster_of

    nodes, gpus, gpu = learned.nodes or 1, learned.gpus or 1, catalog.gpu(learned.gpu or "").name
    known = Known(
        name=f"{gpu}-{nodes}x{gpus}", launcher="slurm" if learned.slurm or nodes > 1 else "local", nodes=nodes,
        gpu=gpu, gpus=gpus, stated=f"prlc init, stated or from {learned.source}" if learned.source else "prlc init",
        cpus=learned.cpus, memory=learned.memory, scratch=learned.scratch, read=learned.source,
    )  # fmt: skip
    return cluster_of(known, catalog.cluster(LIKE.get(gpu, "h200-1x8")))


def _read_cluster(name: str) -> Cluster:
    from prlc import catalog

    return catalog.cluster(name)


def _longest(model: str) -> int:
    """Longest sequence of a model, tokens. Raises CatalogError, for a model without a formula too."""
    from prlc import catalog

    return catalog.facts(catalog.model(model)).max_position


def _named(given: str, kind: str, folder: Path) -> str:
    """A catalog name as it is; a path as the spec sees it."""
    from prlc import catalog

    return given if given in catalog.names("model" if kind == "model" else "cluster") else _beside(given, folder)


def _beside(given: str, folder: Path) -> str:
    """A path as seen from `folder`, never to be taken for a catalog name."""
    path = Path(given).expanduser()
    if path.is_absolute():
        return str(path)
    seen = os.path.relpath(path, folder)
    return seen if seen.startswith("..") else f"./{seen}"


def _write(wanted: list[tuple[Path, str]], force: bool) -> None:
    """Every file or none where one exists. Raises click.UsageError."""
    there = [str(path) for path, _ in wanted if path.exists()]
    if there and not force:
        raise click.UsageError(
            f"already there: {', '.join(there)}; --force overwrites, -o and --cluster-file name others"
        )
    if len({path.absolute() for path, _ in wanted}) < len(wanted):
        raise click.UsageError(f"spec and cluster file are both {wanted[0][0]}: name another with -o")
    for path, _ in wanted:
        if not path.parent.is_dir():
            raise click.UsageError(f"there is no folder {path.parent}")
    for path, text in wanted:
        try:
            with path.open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def _finish(spec: Path, wrote: list[str], notes: tuple[str, ...], unknown: tuple[str, ...], as_json: bool) -> None:
    """Check the spec and say what was done; exits with 1 where it does not plan."""
    from prlc.compiler.commands.common import plan_of, report, text_of
    from prlc.compiler.render import plural

    text = text_of(spec)
    _, found, _ = plan_of(text, str(spec), {})
    errors = [one for one in found if one.severity == "error"]
    if as_json:
        said: dict[str, Any] = {"wrote": wrote, "read": notes, "not_learned": unknown}
        said |= {"errors": len(errors), "warnings": len(found) - len(errors)}
        click.echo(json.dumps(said, indent=1))
    else:
        for heading, lines in (("wrote", wrote), ("read", notes), ("not learned", unknown)):
            if lines:
                click.echo("\n".join((heading, *(f"  {line}" for line in lines))))
        counts = f"{plural(len(errors), 'error')}, {plural(len(found) - len(errors), 'warning')}"
        click.echo(f"checked: {counts}\nnext: prlc {'check' if errors else 'plan'} {spec}")
    if errors:
        report(errors, {str(spec): text}, "text")
        click.echo("The files are written; mend in them what stands above", err=True)
        sys.exit(1)
