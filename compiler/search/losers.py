"""Every other value of a decided path, each with the best plan that holds it: what the choice beat, and by how much."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from prlc.compiler.decisions import layout_text
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.search.trainer_layouts import CP_DEGREES, EP_DEGREES, divisors
from prlc.compiler.whatif import Answer, answer
from prlc.schema.plan import Alternative, Decision

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved

GIB = 2**30
NEAR = 3  # node counts on each side
VALUES: dict[str, tuple[str, ...]] = {
    "trainer.parallel.cp": tuple(map(str, CP_DEGREES)),
    "trainer.parallel.ep": tuple(map(str, EP_DEGREES)),
    "trainer.optimizer.offload": ("none", "cpu"),
    "trainer.activation_checkpoint": ("none", "selective", "full"),
    "trainer.precision": ("bf16", "fp8"),
    "inference.precision": ("bf16", "fp8"),
    "inference.tensor_parallel": ("1", "2", "4", "8"),
    "inference.data_parallel": ("1", "2", "4", "8", "16", "32", "64", "128"),
    "inference.expert_parallel": ("true", "false"),
    "inference.disaggregate": ("true", "false"),
    "inference.kv_offload": ("none", "mooncake"),
    "algorithm.router_replay": ("true", "false"),
}


def with_losers(text: str, filename: str, pins: Mapping[str, str], found: Decision) -> Decision:
    """The decision with its alternatives planned anew, one a value; the decision itself where it has none to try."""
    chosen = answer(text, filename, pins)
    if chosen.choice is None or chosen.resolved is None:
        return found
    tried = [v for v in values_of(chosen.resolved, found) if v != found.value]
    if not tried:
        return found
    answers = [answer(text, filename, {**pins, found.path: value}) for value in tried]
    losers = [(a, Alternative(value=v, outcome=outcome(a, chosen))) for v, a in zip(tried, answers, strict=True)]
    losers.sort(key=lambda pair: (pair[0].choice is None, pair[0].choice.step if pair[0].choice else 0.0))
    return dataclasses.replace(found, alternatives=tuple(loser for _, loser in losers))


def values_of(resolved: Resolved, found: Decision) -> tuple[str, ...]:
    """Values that the path may have on this cluster and model."""
    path, nodes = found.path, resolved.cluster.nodes
    if path == "trainer.parallel.dp_replicate":
        return tuple(str(n) for n in divisors(nodes) if n <= 16)
    if path in ("trainer.nodes", "nodes", "inference.prefill_nodes", "inference.decode_nodes"):
        if not found.value.isdigit():
            return ()
        at = int(found.value)
        return tuple(str(n) for n in range(max(1, at - NEAR), min(nodes, at + NEAR) + 1))
    if path == "trainer.parallel.ep" and resolved.facts.num_experts:
        return tuple(v for v in VALUES[path] if resolved.facts.num_experts % int(v) == 0)
    return VALUES.get(path, ())


def outcome(tried: Answer, chosen: Answer) -> str:
    """'step 312 s (+8.1 %), trainer 118.2 GiB a GPU (+9.0), ...' or why there is no plan."""
    if tried.choice is None:
        return f"refused: {tried.why}"
    best = chosen.choice
    assert best is not None
    more = tried.choice.gpus - best.gpus
    memory, was = memory_of(tried), memory_of(chosen)
    return (
        f"step {tried.choice.step:.1f} s ({tried.choice.step / best.step - 1:+.1%}), {tried.choice.gpus} GPUs"
        f"{f' ({more:+d})' if more else ''}, trainer {tried.choice.trainer:.1f} s and {memory:.1f} GiB a GPU"
        f" ({memory - was:+.1f}), rollouts {tried.choice.rollouts:.1f} s; {layout_text(tried.choice)}"
    )


def memory_of(found: Answer) -> float:
    """GiB of the trainer's fullest GPU."""
    assert found.resolved is not None
    assert found.choice is not None
    r, mesh = found.resolved, found.choice.layout.trainer
    ledger = trainer_ledger(r.facts, r.gpu, mesh, r.spec.trainer.precision, r.spec.sequence.seq_len)
    return ledger.total / GIB
