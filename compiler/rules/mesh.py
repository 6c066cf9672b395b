"""Degrees that the spec holds must make a mesh on some number of trainer nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.parallel_layout import PARALLEL, held, node_budget
from prlc.compiler.rules.places import EXPERTS, of_cluster, of_model
from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

DENSE = ("dp_replicate", "dp_shard", "cp")


def worlds(resolved: Resolved) -> tuple[int, ...]:
    """Trainer ranks that the cluster can give: a share of one node, or whole nodes; any count of CPU processes."""
    gpus, budget, asked = resolved.cluster.node.gpus, node_budget(resolved), resolved.spec.trainer.nodes
    if resolved.gpu.device == "cpu":
        nodes = 1 if asked == "auto" else int(asked)
        return tuple(nodes * n for n in range(1, max(1, gpus) + 1))
    if budget == 1:
        return tuple(n for n in range(1, gpus) if gpus % n == 0)
    counts = range(1, budget) if asked == "auto" else (int(asked),)
    return tuple(n * gpus for n in counts if n < budget)


@spec_rule(
    "PRL312",
    refused={"cluster": "h200-28x8", "trainer": {"nodes": 2, "parallel": {"dp_shard": 12}}},
    accepted={"cluster": "h200-28x8", "trainer": {"nodes": 2, "parallel": {"dp_shard": 16}}},
)
def degrees_make_the_world(resolved: Resolved) -> Iterator[Diagnostic]:
    """The degrees of the mesh multiply to the trainer's ranks.

    Inequality: dp_replicate x dp_shard x cp == trainer ranks, for some number of ranks that the cluster can give
    Source: torchtitan 0.3.0 ParallelDims; the ranks are whole nodes, or on a single node a divisor of its GPUs that
    leaves some to the engines.
    Cure: leave one of the three to auto, or hold a product that whole nodes have.
    """
    given = {name: value for name in DENSE if (value := held(resolved, name))}
    possible = worlds(resolved)
    if not given or not possible:
        return
    product = 1
    for value in given.values():
        product *= value
    whole = "dp_shard" in given and ("cp" in given or product in possible)
    # dp_replicate that is left to auto is 1; dp_shard takes what the others leave
    fits = [n for n in possible if (n == product if whole else n % product == 0)]
    if fits or (resolved.gpu.device == "cpu" and given.get("dp_shard", 1) > max(possible)):  # PRL318 says it better
        return
    shown = " x ".join(f"{name} {value}" for name, value in given.items())
    near = sorted(possible, key=lambda n: (abs(n - product), n))[:3]
    first = next(name for name in ("dp_shard", "cp", "dp_replicate") if name in given)
    yield finding(
        "PRL312",
        f"no number of trainer ranks is made by {shown}",
        resolved.span((*PARALLEL, first)),
        label=f"product {product}; ranks that can be had: {', '.join(map(str, sorted(near)))}, ...",
        rule="dp_replicate * dp_shard * cp == trainer ranks",
        help=f"{first}: auto",
        related=of_cluster(resolved, ("node", "gpus"), f"{resolved.cluster.node.gpus} GPUs a node"),
    )


@spec_rule(
    "PRL313",
    refused={"cluster": "h200-28x8", "trainer": {"nodes": 1, "parallel": {"ep": 16}}},
    accepted={"cluster": "h200-28x8", "trainer": {"nodes": 2, "parallel": {"ep": 16}}},
)
def expert_mesh_fits(resolved: Resolved) -> Iterator[Diagnostic]:
    """Expert-parallel groups fill the ranks that shards and context parallelism span.

    Inequality: (dp_shard x cp) % ep == 0, for ep > 1 and some number of ranks that the cluster can give
    Source: torchtitan 0.3.0 ParallelDims: the expert mesh borrows its ranks from dp_shard x cp.
    Cure: an ep that divides them, more trainer nodes, or ep: auto.
    """
    ep, replicate = held(resolved, "ep"), held(resolved, "dp_replicate") or 1
    possible = worlds(resolved)
    if not ep or ep == 1 or not possible or not resolved.facts.num_experts or resolved.facts.num_experts % ep:
        return
    shard, cp = held(resolved, "dp_shard"), held(resolved, "cp")
    spans = [shard * cp] if shard and cp else [n // replicate for n in possible if n % replicate == 0]
    if any(span % ep == 0 for span in spans):
        return
    experts = resolved.facts.num_experts
    fits = [n for n in range(2, 65) if experts % n == 0 and any(span % n == 0 for span in spans)]
    yield finding(
        "PRL313",
        f"groups of {ep} expert-parallel ranks do not fill the trainer's {', '.join(map(str, spans[:4]))} ranks",
        resolved.span((*PARALLEL, "ep")),
        label=f"{spans[-1]} % {ep} = {spans[-1] % ep}, must be 0" if spans else "no ranks",
        rule="(dp_shard * cp) % ep == 0",
        help=f"ep: {fits[-1]}" if fits else "ep: auto",
        related=of_model(resolved, EXPERTS, f"{experts} experts"),
    )


@spec_rule(
    "PRL318",
    refused={
        "model": "tiny-moe",
        "cluster": "local-cpu",
        "sequence": {"seq_len": 512},
        "trainer": {"parallel": {"dp_shard": 64}},
    },
    accepted={
        "model": "tiny-moe",
        "cluster": "local-cpu",
        "sequence": {"seq_len": 512},
        "trainer": {"parallel": {"dp_shard": 2}},
    },
)
def processes_of_a_cpu_node(resolved: Resolved) -> Iterator[Diagnostic]:
    """A CPU node runs no more trainer ranks than the cluster file allows.

    Inequality: dp_shard / trainer nodes <= node.gpus, on a CPU cluster
    Source: node.gpus of a CPU cluster is the number of processes that may act as a GPU; more of them share cores
    and memory that the plan does not know of.
    Cure: a smaller dp_shard, or a cluster file that allows more.
    """
    shard, asked = held(resolved, "dp_shard"), resolved.spec.trainer.nodes
    if resolved.gpu.device != "cpu" or not shard:
        return
    nodes, most = 1 if asked == "auto" else int(asked), max(1, resolved.cluster.node.gpus)
    if shard > nodes * most:
        yield finding(
            "PRL318",
            f"{shard} trainer ranks on {nodes} CPU node{'s' * (nodes > 1)}, which may run {most} each",
            resolved.span((*PARALLEL, "dp_shard")),
            label=f"{shard} > {nodes} x {most}",
            rule="dp_shard <= trainer nodes * node.gpus",
            help=f"dp_shard: {nodes * most}",
            related=of_cluster(resolved, ("node", "gpus"), "processes that may act as a GPU"),
        )
