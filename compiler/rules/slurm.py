"""The batch job: what sbatch takes, what the bundle decides by itself, and the ports of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.bundle.ports import BLOCK, LAST, last_port
from prlc.compiler.bundle.slurm import EXTRA, extra_option
from prlc.compiler.rules.rule import finding, layout_rule, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger

PINNED = re.compile(r"/[^\s,]+\.sqsh|[\w.:#/-]+@sha256:[0-9a-f]{64}")
MOUNT = re.compile(r"/[\w.@+/-]*:/[\w.@+/-]*(:[a-z+-]+)?")


@spec_rule(
    "PRL701",
    refused={"slurm": {"extra": ["--nodes=3"]}},
    accepted={"slurm": {"extra": ["--gres-flags=enforce-binding", "--nice"]}},
)
def known_extra_options(resolved: Resolved) -> Iterator[Diagnostic]:
    """A further #SBATCH option has the form --name or --name=value and is one that the bundle does not depend on.

    Inequality: slurm.extra[i] matches --name(=word)? and its name is in the list of `prlc.compiler.bundle.slurm`
    Source: sbatch(1): of an option said twice the last wins; nodes, tasks, GPUs, output, signal and requeue are the
    plan's.
    Cure: the key of the spec that says the same (nodes, slurm.time, slurm.requeue, ...), or leave it out.
    """
    for index, line in enumerate(resolved.spec.slurm.extra):
        option = extra_option(line)
        if option is not None and option[0] in EXTRA:
            continue
        what = "has another form than --name or --name=value" if option is None else "is not among the options allowed"
        yield finding(
            "PRL701",
            f"slurm.extra: {line!r} {what}",
            resolved.span(("slurm", "extra", index)),
            label="becomes an #SBATCH line",
            rule="--name or --name=value, with name one of: " + ", ".join(EXTRA),
            help="use the spec's own key for it (nodes, slurm.time, slurm.requeue, ...), or leave it out",
        )


@spec_rule(
    "PRL702",
    refused={"slurm": {"container": {"image": "registry.example/prlc:latest"}}},
    accepted={"slurm": {"container": {"image": "/images/prlc.sqsh", "mounts": ["/data:/data:ro"]}}},
)
def pinned_container(resolved: Resolved) -> Iterator[Diagnostic]:
    """A container image is pinned, and its mounts are absolute.

    Inequality: image is /path.sqsh or REGISTRY#NAME@sha256:(64 hex digits); a mount is /source:/destination[:flags]
    Source: pyxis's srun --container-image and --container-mounts; a tag may be another image tomorrow.
    Cure: import the image once (enroot import) and name the .sqsh file, or add the digest.
    """
    container = resolved.spec.slurm.container
    if container is None:
        return
    if not PINNED.fullmatch(container.image):
        yield finding(
            "PRL702",
            f"slurm.container.image {container.image!r} is not pinned",
            resolved.span(("slurm", "container", "image")),
            rule="an absolute path to a .sqsh file, or NAME@sha256:DIGEST",
            help="enroot import it once and name the .sqsh file, or add @sha256:... of the image",
        )
    for index, mount in enumerate(container.mounts):
        if not MOUNT.fullmatch(mount):
            yield finding(
                "PRL702",
                f"slurm.container.mounts: {mount!r} is not /source:/destination[:flags]",
                resolved.span(("slurm", "container", "mounts", index)),
                help="absolute paths of letters, digits and . _ @ + -, e.g. /data:/data:ro",
            )


@spec_rule(
    "PRL703",
    refused={"slurm": {"comment": "for the paper"}},
    accepted={"slurm": {"comment": "for-the-paper", "mail_user": "me@example.org", "mail_type": "FAIL,REQUEUE"}},
)
def one_word_texts(resolved: Resolved) -> Iterator[Diagnostic]:
    """Comment and mail options are one word.

    Inequality: slurm.comment, mail_user and mail_type match [A-Za-z0-9_.,:@+/=-]+
    Source: sbatch splits #SBATCH lines at white space and drops what follows.
    Cure: dashes instead of spaces.
    """
    for key in ("comment", "mail_user", "mail_type"):
        value = getattr(resolved.spec.slurm, key)
        if value is not None and not re.fullmatch(r"[\w.,:@+/=-]+", value, re.ASCII):
            yield finding(
                "PRL703",
                f"slurm.{key} must be one plain word: {value!r}",
                resolved.span(("slurm", key)),
                label="becomes one word of an #SBATCH line",
                help="use dashes instead of spaces",
            )


@spec_rule(
    "PRL704",
    refused={"slurm": {"time": "30min", "signal_time": "20min"}},
    accepted={"slurm": {"time": "24h", "signal_time": "20min"}},
)
def time_to_work_and_to_save(resolved: Resolved) -> Iterator[Diagnostic]:
    """The signal comes late enough to have worked, and early enough to be seen.

    Inequality: 90 s <= slurm.signal_time <= slurm.time / 2
    Source: slurmctld looks at limits every 30 s and sends the signal up to 60 s early (sbatch(1), --signal).
    Cure: a longer slurm.time, or another slurm.signal_time.
    """
    asked, limit = resolved.spec.slurm.signal_time, resolved.spec.slurm.time
    if asked == "auto":
        return
    if float(asked) < 90 or (limit is not None and float(asked) > limit / 2):
        yield finding(
            "PRL704",
            f"slurm.signal_time of {float(asked):g} s leaves no time to "
            + ("save" if float(asked) < 90 else f"work in a job of {limit:g} s"),
            resolved.span(("slurm", "signal_time")),
            rule="90 s <= slurm.signal_time <= slurm.time / 2",
            help="leave it auto, or make slurm.time longer",
        )


@layout_rule(
    "PRL705",
    refused={"ports": ((0, 20000, "trainer", "rendezvous"), (0, 20256, "engine", "http"))},
    accepted={"ports": ((0, 20000, "trainer", "rendezvous"), (0, 20255, "engine", "http"))},
)
def ports_fit_the_block(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """A run's ports on a node fit into its block of 256, ranges included, and end below 65536.

    Inequality: last port - first port < 256 on each node, and last port <= 65535
    Source: two runs of one machine have different blocks; TCP has 16 bits.
    Cure: fewer servers a node, or a lower runtime.base_port.
    """
    for node in sorted({use.node for use in layout.ports}):
        uses = [use for use in layout.ports if use.node == node]
        first, last = min(use.port for use in uses), max(last_port(use) for use in uses)
        if last > LAST or last - first >= BLOCK:
            yield finding(
                "PRL705",
                f"node {node} needs the ports {first} to {last}",
                resolved.span(("runtime", "base_port")) or resolved.span(("cluster",)),
                rule=f"at most {BLOCK} ports a node, none above {LAST}",
                help="put fewer servers on a node, or set runtime.base_port lower",
            )
            return


@layout_rule(
    "PRL706",
    refused={
        "cluster": {"leaf_nodes": 4},
        "layout": {"nodes": 9},
        "engine": {"nodes": (2, 3, 4, 5), "replicas": 1, "dp": 32, "ep": 32},
    },
    accepted={
        "cluster": {"leaf_nodes": 4},
        "layout": {"nodes": 9},
        "engine": {"nodes": (4, 5, 6, 7), "replicas": 1, "dp": 32, "ep": 32},
    },
)
def expert_groups_under_a_leaf(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """An expert-parallel group crosses no more leaf switches than it must, if the allocation fills whole leaves.

    Inequality: leaves of the group's first and last node, counted from node 0, differ by less than
    ceil(nodes of the group / leaf_nodes)
    Source: leaf_nodes of the cluster file; Slurm's topology plugins order the hosts of an allocation by leaf.
    Cure: inference.prefill_nodes or trainer.nodes that are multiples of leaf_nodes; slurm.switches for whole leaves.
    """
    leaf = resolved.cluster.leaf_nodes
    if leaf is None:
        return
    trainer = layout.trainer
    per_group = max(1, trainer.ep // trainer.ranks_per_node)
    groups = [(trainer.nodes, per_group, "trainer")] if per_group > 1 else []
    groups += [(e.nodes, max(1, len(e.nodes) // e.replicas), e.role) for e in layout.engines if e.ep > 1]
    for nodes, size, role in groups:
        for start in range(0, len(nodes) - size + 1, size):
            first, last = nodes[start], nodes[start + size - 1]
            if last // leaf - first // leaf >= -(-size // leaf):
                crossed, least = last // leaf - first // leaf + 1, -(-size // leaf)
                yield finding(
                    "PRL706",
                    f"{role}: an expert-parallel group on nodes {first}-{last} crosses {crossed} leaf switches "
                    f"of {leaf} nodes, {least} would do",
                    resolved.span(("inference" if role != "trainer" else "trainer",)) or resolved.span(("cluster",)),
                    rule="no more leaves than ceil(nodes of the group / leaf_nodes)",
                    help=f"node counts of the roles before it that are multiples of {leaf}, and slurm.switches",
                    severity="warning",
                )
                break
