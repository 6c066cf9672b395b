"""Nodes, launchers and engine groups that the cluster must be able to give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.parallel_layout import node_budget
from prlc.compiler.rules.places import EXPERTS, of_cluster, of_model
from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic


@spec_rule(
    "PRL324",
    refused={"cluster": "h200-28x8", "nodes": 32},
    accepted={"cluster": "h200-28x8", "nodes": 28},
)
def nodes_on_the_cluster(resolved: Resolved) -> Iterator[Diagnostic]:
    """The cluster has the nodes that the spec asks for.

    Inequality: nodes <= nodes of the cluster
    Source: a job that wants more nodes than there are is refused by sbatch, or waits for ever.
    Cure: fewer nodes, nodes: auto, or a cluster file that states the real count.
    """
    asked, there = resolved.spec.nodes, resolved.cluster.nodes
    if asked != "auto" and asked > there:
        yield finding(
            "PRL324",
            f"{asked} nodes are asked for, and {resolved.cluster.name} has {there}",
            resolved.span(("nodes",)),
            label=f"{asked} > {there}",
            rule="nodes <= cluster nodes",
            help=f"nodes: {there}",
            related=of_cluster(resolved, ("nodes",), f"nodes: {there}"),
        )


@spec_rule(
    "PRL325",
    refused={"cluster": "h200-28x8", "target": "local"},
    accepted={"cluster": "h200-1x8", "target": "local"},
)
def launcher_reaches_the_nodes(resolved: Resolved) -> Iterator[Diagnostic]:
    """The launcher can reach the nodes: the local one knows this machine alone, sbatch needs Slurm.

    Inequality: target == local => 1 node; target == slurm => the cluster's launcher is slurm
    Source: run.sh starts every process on 127.0.0.1; run.sbatch asks slurmctld for nodes.
    Cure: target: auto, or nodes: 1 for a run on this machine.
    """
    target, cluster = resolved.spec.target, resolved.cluster
    nodes = node_budget(resolved)
    effective = cluster.launcher if target == "auto" else target
    if effective == "local" and nodes > 1:
        yield finding(
            "PRL325",
            f"the local launcher starts everything on this machine, and the plan may use {nodes} nodes",
            resolved.span(("target",)) or resolved.span(("cluster",)),
            label=f"{nodes} nodes, must be 1",
            rule="target == local => 1 node",
            help="nodes: 1" if target == "auto" else "target: auto, or nodes: 1",
            related=of_cluster(resolved, ("nodes",), f"nodes: {cluster.nodes}"),
        )
    if effective == "slurm" and cluster.launcher == "local":
        yield finding(
            "PRL325",
            f"{cluster.name} starts jobs without Slurm, and the spec asks for an sbatch script",
            resolved.span(("target",)),
            label="no Slurm there",
            rule="target == slurm => the cluster's launcher is slurm",
            help="target: auto",
            related=of_cluster(resolved, ("launcher",), "how jobs start"),
        )


@spec_rule(
    "PRL326",
    refused={"cluster": "h200-1x8", "inference": {"disaggregate": True}},
    accepted={"cluster": "h200-28x8", "inference": {"disaggregate": True}},
)
def apart_needs_nodes(resolved: Resolved) -> Iterator[Diagnostic]:
    """Prefill and decode apart need GPU nodes of their own.

    Inequality: disaggregate == true => GPUs, and nodes >= trainer nodes + 2 (prefill_nodes + 1, decode_nodes + 1)
    Source: each side fills whole nodes beside the trainer's; vLLM's CPU build is planned as one engine.
    Cure: disaggregate: auto, more nodes, or fewer for the trainer.
    """
    inference, asked = resolved.spec.inference, resolved.spec.trainer.nodes
    if inference.disaggregate is not True:
        return
    span = resolved.span(("inference", "disaggregate"))
    if resolved.gpu.device == "cpu":
        yield finding(
            "PRL326",
            "a CPU run has one engine: prefill and decode cannot be apart",
            span,
            label=f"{resolved.cluster.name} has no GPU",
            rule="disaggregate => GPUs",
            help="disaggregate: auto",
            related=of_cluster(resolved, ("node", "gpu"), "no GPU"),
        )
        return
    held = [int(n) for n in (inference.prefill_nodes, inference.decode_nodes) if n != "auto"]
    trainer = 1 if asked == "auto" else int(asked)
    least, budget = trainer + (held[0] + 1 if held else 2), node_budget(resolved)
    if budget < least:
        yield finding(
            "PRL326",
            f"trainer, prefill and decode need {least} nodes, and the plan may use {budget}",
            span,
            label=f"{budget} < {trainer} + {least - trainer}",
            rule="nodes >= trainer nodes + prefill nodes + decode nodes",
            help="disaggregate: auto" + (", and leave prefill_nodes and decode_nodes out" if held else ""),
            related=of_cluster(resolved, ("nodes",), f"nodes: {resolved.cluster.nodes}"),
        )


@spec_rule(
    "PRL327",
    refused={"model": "qwen3-8b", "inference": {"data_parallel": 4}},
    accepted={"inference": {"data_parallel": 4, "tensor_parallel": 1}},
)
def ranks_share_experts(resolved: Resolved) -> Iterator[Diagnostic]:
    """Data-parallel ranks form a group only to share experts.

    Inequality: data_parallel > 1 => the model has experts and expert_parallel is not false
    Source: without shared experts every server is a replica of its own and needs no group; vLLM refuses an
    external load balancer over one rank.
    Cure: leave data_parallel out: replicas fill the nodes anyway.
    """
    inference = resolved.spec.inference
    ranks = inference.data_parallel
    if ranks == "auto" or ranks == 1:
        return
    dense = not resolved.facts.num_experts
    if dense or inference.expert_parallel is False:
        yield finding(
            "PRL327",
            f"{ranks} data-parallel ranks have nothing to share: "
            + (f"{resolved.model.name} is dense" if dense else "expert_parallel is false"),
            resolved.span(("inference", "data_parallel")),
            label="would have no effect",
            rule="data_parallel > 1 => experts are shared",
            help="data_parallel: auto; servers fill the nodes as replicas",
        )


@spec_rule(
    "PRL328",
    refused={"model": "qwen3-8b", "inference": {"expert_parallel": True}},
    accepted={"inference": {"expert_parallel": True}},
)
def experts_to_share(resolved: Resolved) -> Iterator[Diagnostic]:
    """Expert parallelism needs experts.

    Inequality: expert_parallel == true => num_experts > 0
    Source: vLLM ignores --enable-expert-parallel for a dense model; prlc ignores nothing that was said.
    Cure: expert_parallel: auto.
    """
    if resolved.spec.inference.expert_parallel is True and not resolved.facts.num_experts:
        yield finding(
            "PRL328",
            f"{resolved.model.name} is dense: engines have no experts to share",
            resolved.span(("inference", "expert_parallel")),
            label="no experts",
            help="expert_parallel: auto",
        )


@spec_rule(
    "PRL329",
    refused={"cluster": "h200-28x8", "inference": {"tensor_parallel": 1, "data_parallel": 12}},
    accepted={"cluster": "h200-28x8", "inference": {"tensor_parallel": 1, "data_parallel": 16}},
)
def replicas_fill_nodes(resolved: Resolved) -> Iterator[Diagnostic]:
    """A replica of several servers fills whole nodes, and its ranks share the experts evenly.

    Inequality: (data_parallel x tensor_parallel) % gpus_per_node == 0 and num_experts % (data_parallel x
    tensor_parallel) == 0, on clusters of several nodes
    Source: servers do not span nodes and a node serves one replica, so that no node is half idle; vLLM places
    num_experts / ranks experts on a rank.
    Cure: one of the degrees that fit.
    """
    inference, gpus = resolved.spec.inference, resolved.cluster.node.gpus
    dp, tp, experts = inference.data_parallel, inference.tensor_parallel, resolved.facts.num_experts
    if dp == "auto" or dp == 1 or not experts or node_budget(resolved) == 1 or resolved.gpu.device == "cpu":
        return
    degrees = (1, 2, 4, 8) if tp == "auto" else (tp,)
    if any((dp * t) % gpus == 0 and experts % (dp * t) == 0 for t in degrees):
        return
    tp = degrees[0]
    ranks = dp * tp
    fits = [n * gpus // tp for n in range(1, node_budget(resolved)) if experts % (n * gpus) == 0]
    yield finding(
        "PRL329",
        f"a replica of {ranks} ranks does not fill whole nodes of {gpus} GPUs, or does not share {experts} experts",
        resolved.span(("inference", "data_parallel")),
        label=f"{ranks} % {gpus} = {ranks % gpus}, {experts} % {ranks} = {experts % ranks}, both must be 0",
        rule="(data_parallel * tensor_parallel) % gpus_per_node == 0 and num_experts % ranks == 0",
        help=f"data_parallel that fits: {', '.join(map(str, fits))}" if fits else "data_parallel: auto",
        related=of_model(resolved, EXPERTS, f"{experts} experts"),
    )
