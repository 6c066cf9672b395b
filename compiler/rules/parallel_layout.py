"""Degrees that the spec holds must divide what they split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.places import EXPERTS, of_cluster, of_model
from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

PARALLEL = ("trainer", "parallel")


def held(resolved: Resolved, degree: str) -> int | None:
    """The degree that the spec holds, None for auto."""
    parallel = resolved.spec.trainer.parallel
    value = "auto" if parallel == "auto" else getattr(parallel, degree)
    return None if value == "auto" else int(value)


def node_budget(resolved: Resolved) -> int:
    """Nodes that the plan may use."""
    asked = resolved.spec.nodes
    return resolved.cluster.nodes if asked == "auto" else min(int(asked), resolved.cluster.nodes)


def fitting_degrees(experts: int, near: int, cp: int) -> list[int]:
    """Up to four expert-parallel degrees that divide the experts and hold whole cp groups, nearest first."""
    fits = [ep for ep in range(2, experts + 1) if experts % ep == 0 and ep % cp == 0 and ep <= 64]
    return sorted(sorted(fits, key=lambda ep: (abs(ep - near), ep))[:4])


@spec_rule(
    "PRL311",
    refused={"trainer": {"parallel": {"cp": 4, "ep": 2}}},
    accepted={"trainer": {"parallel": {"cp": 4, "ep": 8}}},
)
def whole_context_groups(resolved: Resolved) -> Iterator[Diagnostic]:
    """An expert-parallel group holds whole context-parallel groups.

    Inequality: ep % cp == 0, for ep > 1
    Source: torchtitan 0.3.0 ParallelDims folds cp into the expert mesh.
    Cure: an ep that is a multiple of cp, a smaller cp, or auto for one of them.
    """
    cp, ep = held(resolved, "cp"), held(resolved, "ep")
    if cp and ep and ep > 1 and ep % cp:
        yield finding(
            "PRL311",
            f"{ep} expert-parallel ranks do not hold whole groups of {cp} context-parallel ranks",
            resolved.span((*PARALLEL, "ep")),
            label=f"{ep} % {cp} = {ep % cp}, must be 0",
            rule="ep % cp == 0",
            help=f"ep: {max(1, round(ep / cp)) * cp}, or ep: auto",
        )


@spec_rule(
    "PRL314",
    refused={"trainer": {"parallel": {"ep": 12}}},
    accepted={"trainer": {"parallel": {"ep": 8}}},
)
def experts_divide(resolved: Resolved) -> Iterator[Diagnostic]:
    """Expert-parallel ranks hold equally many experts.

    Inequality: num_experts % ep == 0
    Source: torchtitan 0.3.0 ExpertParallel shards dimension 0 of the grouped weights evenly.
    Cure: an ep that divides the experts, or ep: auto.
    """
    ep, experts = held(resolved, "ep"), resolved.facts.num_experts
    if ep and experts and experts % ep:
        cp = held(resolved, "cp") or 1
        # a cp that cannot stay (PRL317) says nothing of ep
        fits = fitting_degrees(experts, ep, cp if _heads_fit(resolved.facts, cp) else 1)
        yield finding(
            "PRL314",
            f"{ep} expert-parallel ranks cannot share {experts} experts",
            resolved.span((*PARALLEL, "ep")),
            label=f"{experts} % {ep} = {experts % ep}, must be 0",
            rule="num_experts % ep == 0 and (dp_shard * cp) % ep == 0 and ep % cp == 0",
            help=f"ep that fits: {', '.join(map(str, fits))}" if fits else "ep: auto",
            related=of_model(resolved, EXPERTS, f"{experts} experts"),
        )


@spec_rule(
    "PRL315",
    refused={"model": "qwen3-8b", "trainer": {"parallel": {"ep": 8}}},
    accepted={"model": "qwen3-8b", "trainer": {"parallel": {"ep": 1}}},
)
def dense_has_no_experts(resolved: Resolved) -> Iterator[Diagnostic]:
    """A dense model has no experts to spread.

    Inequality: ep == 1 for a model without experts
    Source: the model's config.json has no expert count.
    Cure: leave trainer.parallel.ep out.
    """
    ep = held(resolved, "ep")
    if ep and ep > 1 and not resolved.facts.num_experts:
        yield finding(
            "PRL315",
            f"{resolved.model.name} is dense: there are no experts for {ep} expert-parallel ranks",
            resolved.span((*PARALLEL, "ep")),
            label="no experts",
            help="ep: 1, or leave it out",
        )


@spec_rule(
    "PRL316",
    refused={"sequence": {"seq_len": 16380}, "trainer": {"parallel": {"cp": 4}}},
    accepted={"sequence": {"seq_len": 16384}, "trainer": {"parallel": {"cp": 4}}},
)
def sequence_divides(resolved: Resolved) -> Iterator[Diagnostic]:
    """Context parallelism cuts a sequence in 2 x cp equal pieces.

    Inequality: seq_len % (2 x cp) == 0, for cp > 1
    Source: the head-tail balancer of torch's context parallelism gives a rank one early and one late piece.
    Cure: a seq_len that is a multiple of 2 x cp.
    """
    cp, length = held(resolved, "cp"), resolved.spec.sequence.seq_len
    # a cp that the heads refuse (PRL317) has to go: the length is no fault then
    if cp and cp > 1 and length % (2 * cp) and _heads_fit(resolved.facts, cp):
        yield finding(
            "PRL316",
            f"{length} tokens cannot be cut in {2 * cp} equal pieces for {cp} context-parallel ranks",
            resolved.span((*PARALLEL, "cp")),
            label=f"{length} % {2 * cp} = {length % (2 * cp)}, must be 0",
            rule="seq_len % (2 * cp) == 0",
            help=f"seq_len: {-(-length // (2 * cp)) * 2 * cp}",
        )


@spec_rule(
    "PRL317",
    refused={"trainer": {"parallel": {"cp": 3}}, "sequence": {"seq_len": 16386}},
    accepted={"trainer": {"parallel": {"cp": 4}}},
)
def heads_divide(resolved: Resolved) -> Iterator[Diagnostic]:
    """Context-parallel ranks share the attention heads evenly.

    Inequality: heads % cp == 0, and kv_heads % cp == 0 or cp % kv_heads == 0, and groups % cp == 0 for linear layers
    Source: the exchange of sequence for heads around attention (Ulysses) gives a rank whole query heads and whole
    or replicated KV heads; Mamba and delta-net layers are cut by their groups.
    Cure: a cp that divides the model's attention heads.
    """
    cp, facts = held(resolved, "cp"), resolved.facts
    if not cp or cp == 1 or _heads_fit(facts, cp):
        return
    fits = [str(n) for n in (2, 4, 8, 16) if _heads_fit(facts, n)]
    groups = f", {facts.mamba_groups} groups" if facts.linear_layers else ""
    yield finding(
        "PRL317",
        f"{cp} context-parallel ranks cannot share {facts.heads} attention heads and {facts.kv_heads} KV heads{groups}",
        resolved.span((*PARALLEL, "cp")),
        label=f"{facts.heads} % {cp} = {facts.heads % cp}",
        rule="heads % cp == 0 and (kv_heads % cp == 0 or cp % kv_heads == 0)",
        help=f"cp that fits: {', '.join(fits)}" if fits else "cp: 1",
        related=of_model(resolved, ("num_attention_heads",), f"{facts.heads} heads"),
    )


def _heads_fit(facts: ModelFacts, cp: int) -> bool:
    kv = facts.kv_heads % cp == 0 or cp % facts.kv_heads == 0
    return facts.heads % cp == 0 and kv and (not facts.linear_layers or facts.mamba_groups % cp == 0)


@spec_rule(
    "PRL321",
    refused={"inference": {"tensor_parallel": 3}},
    accepted={"inference": {"tensor_parallel": 4}},
)
def tensor_parallel_in_a_node(resolved: Resolved) -> Iterator[Diagnostic]:
    """A tensor-parallel engine stays in a node and fills it with others of its size.

    Inequality: gpus_per_node % tensor_parallel == 0 and heads % tensor_parallel == 0
    Source: a vLLM server of this compiler does not span nodes; vLLM splits attention by whole heads.
    Cure: a degree that divides both.
    """
    tp, heads = resolved.spec.inference.tensor_parallel, resolved.facts.heads
    gpus = max(1, resolved.cluster.node.gpus)
    if tp == "auto" or (gpus % tp == 0 and heads % tp == 0):
        return
    # the one engine of a CPU run has one rank
    most = gpus if resolved.gpu.device == "cuda" else 1
    fits = [str(n) for n in range(1, most + 1) if gpus % n == 0 and heads % n == 0]
    yield finding(
        "PRL321",
        f"tensor_parallel {tp} must divide both the {gpus} GPUs of a node and the {heads} heads",
        resolved.span(("inference", "tensor_parallel")),
        label=f"{gpus} % {tp} = {gpus % tp}, {heads} % {tp} = {heads % tp}, both must be 0",
        rule="gpus_per_node % tensor_parallel == 0 and heads % tensor_parallel == 0",
        help=f"tensor_parallel: {' or '.join(fits)}, or auto",
        related=of_cluster(resolved, ("node", "gpus"), f"{gpus} GPUs a node"),
    )


@spec_rule(
    "PRL322",
    refused={"cluster": "h200-28x8", "trainer": {"nodes": 28}},
    accepted={"cluster": "h200-28x8", "trainer": {"nodes": 12}},
)
def nodes_for_engines(resolved: Resolved) -> Iterator[Diagnostic]:
    """The trainer leaves nodes for the engines.

    Inequality: trainer.nodes < nodes on a cluster of several nodes; trainer.nodes == 1 on a single node; on
    three or more CPU nodes trainer.nodes <= nodes - 2 (engine and orchestrator have one each)
    Source: trainer and engines run at the same time on disjoint GPUs.
    Cure: fewer trainer nodes, or auto.
    """
    asked, budget = resolved.spec.trainer.nodes, node_budget(resolved)
    cpu = resolved.gpu.device == "cpu"
    most = 1 if budget <= 2 else budget - (2 if cpu else 1)
    if asked == "auto" or int(asked) <= most:
        return
    yield finding(
        "PRL322",
        f"{asked} trainer nodes of {budget} leave too few nodes for the engines",
        resolved.span(("trainer", "nodes")),
        label=f"{asked} > {most}",
        rule="trainer.nodes < nodes",
        help=f"trainer.nodes: {most}, the most that the trainer can have, or trainer.nodes: auto",
    )


@spec_rule(
    "PRL323",
    refused={"cluster": "h200-28x8", "inference": {"prefill_nodes": 4, "disaggregate": False}},
    accepted={"cluster": "h200-28x8", "inference": {"prefill_nodes": 4, "disaggregate": True}},
)
def one_pinned_side(resolved: Resolved) -> Iterator[Diagnostic]:
    """Nodes of prefill or decode are held only where the two are apart, and only for one of them.

    Inequality: prefill_nodes or decode_nodes held => disaggregate: true, and not both held
    Source: together they share every node; apart the second side is what the first and the trainer leave.
    Cure: disaggregate: true, and one of the two keys.
    """
    inference = resolved.spec.inference
    given = [n for n in ("prefill_nodes", "decode_nodes") if getattr(inference, n) != "auto"]
    if not given or (inference.disaggregate is True and len(given) == 1):
        return
    yield finding(
        "PRL323",
        "prefill_nodes and decode_nodes are both held: the second is what is left"
        if len(given) == 2
        else f"{given[0]} is held, but prefill and decode are not asked to be apart",
        resolved.span(("inference", given[0])),
        help=f"keep {given[0]} alone, with disaggregate: true",
    )
