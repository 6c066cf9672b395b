"""Laws that every memory ledger keeps, over the catalog's models and random layouts."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prlc import catalog
from prlc.compiler.layout import EngineLayout, TrainerLayout
from prlc.compiler.ledger.engine import engine_ledger, kv_pool
from prlc.compiler.ledger.kv import kv_token_bytes, sequence_bytes
from prlc.compiler.ledger.trainer import trainer_ledger
from prlc.compiler.ledger.weights import weight_entries
from prlc.schema.plan import Ledger

from tests.compiler.ledger_layouts import engine, mesh

NAMES = (
    "qwen3-30b-a3b", "qwen3-32b", "qwen3-0.6b", "glm-5.1", "glm-4.5-air", "deepseek-v3", "kimi-k2.7-code",
    "gpt-oss-120b", "nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b", "qwen3.5-122b-a10b", "minimax-m2.5",
)  # fmt: skip
FACTS = {name: catalog.facts(catalog.model(name)) for name in NAMES}
H200 = catalog.gpu("h200")
STATE = ("master weights", "gradients", "optimizer moments")
EXAMPLES = settings(max_examples=60, deadline=None)

degrees = st.sampled_from([1, 2, 4, 8])
models = st.sampled_from(NAMES)


@st.composite
def meshes(draw: Any) -> TrainerLayout:
    nodes, cp, ep = draw(st.sampled_from([1, 2, 4, 12, 28])), draw(degrees), draw(st.sampled_from([1, 2, 4, 8, 16]))
    shard = nodes * 8 // cp
    assume(ep == 1 or (ep % cp == 0 and shard * cp % ep == 0))
    return mesh(
        nodes=tuple(range(nodes)),
        dp_shard=shard,
        cp=cp,
        ep=ep,
        offload=draw(st.sampled_from(["none", "cpu"])),
        activation_checkpoint=draw(st.sampled_from(["none", "selective", "full"])),
        micro_batch_tokens=1 << 20,
    )


@st.composite
def engines(draw: Any) -> EngineLayout:
    tp, dp = draw(degrees), draw(st.sampled_from([1, 2, 8, 16, 64]))
    backend = draw(st.sampled_from(["allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"]))
    shared = dp > 1
    return engine(
        nodes=tuple(range(max(1, tp * dp // 8))),
        tp=tp,
        dp=dp,
        ep=tp * dp if shared else 1,
        all2all=backend if shared else "none",
        max_num_batched_tokens=draw(st.sampled_from([96, 256, 8192])),
        max_model_len=draw(st.sampled_from([4096, 131072])),
    )


def trained(name: str, layout: TrainerLayout, precision: str, seq_len: int) -> Ledger:
    return trainer_ledger(FACTS[name], H200, layout, precision, seq_len)


lengths = st.sampled_from([4096, 16384, 65536, 131072])
precisions = st.sampled_from(["bf16", "fp8"])


@EXAMPLES
@given(models, meshes(), precisions, lengths)
def test_totals_equal_their_entries(name: str, layout: TrainerLayout, precision: str, seq_len: int) -> None:
    made = trained(name, layout, precision, seq_len)
    assert made.total == sum(entry.bytes for entry in made.peak)
    assert made.total == max(made.phases.values())
    assert all(entry.bytes >= 0 for entry in made.entries)


@EXAMPLES
@given(models, meshes(), precisions, lengths)
def test_a_longer_sequence_never_needs_less(name: str, layout: TrainerLayout, precision: str, seq_len: int) -> None:
    assert trained(name, layout, precision, seq_len).total <= trained(name, layout, precision, 2 * seq_len).total


@EXAMPLES
@given(models, meshes(), lengths)
def test_more_shards_never_need_more_sharded_state(name: str, layout: TrainerLayout, seq_len: int) -> None:
    layout = dataclasses.replace(layout, offload="none")
    twice = dataclasses.replace(layout, dp_shard=2 * layout.dp_shard, nodes=tuple(range(2 * len(layout.nodes))))

    def state(one: TrainerLayout) -> int:
        return sum(e.bytes for e in trained(name, one, "bf16", seq_len).entries if e.what in STATE)

    assert state(twice) <= state(layout)
    assert trained(name, twice, "bf16", seq_len).total <= trained(name, layout, "bf16", seq_len).total


@EXAMPLES
@given(models, meshes(), precisions, lengths)
def test_recompute_and_offload_never_need_more(name: str, layout: TrainerLayout, precision: str, seq_len: int) -> None:
    kept = [
        trained(name, dataclasses.replace(layout, activation_checkpoint=kind), precision, seq_len).total
        for kind in ("full", "selective", "none")
    ]
    assert kept == sorted(kept)
    here, away = (
        trained(name, dataclasses.replace(layout, offload=where), precision, seq_len).total for where in ("none", "cpu")
    )
    assert away <= here


@EXAMPLES
@given(models, meshes(), lengths, st.integers(min_value=0, max_value=2**38))
def test_more_memory_never_makes_a_trainer_misfit(name: str, layout: TrainerLayout, seq_len: int, more: int) -> None:
    small = trained(name, layout, "bf16", seq_len)
    gpu = dataclasses.replace(H200, memory=H200.memory + more)
    large = trainer_ledger(FACTS[name], gpu, layout, "bf16", seq_len)
    assert small.total > small.capacity or large.total <= large.capacity


@EXAMPLES
@given(models, engines(), precisions, st.integers(min_value=0, max_value=2**38))
def test_more_memory_never_makes_a_pool_smaller(name: str, layout: EngineLayout, precision: str, more: int) -> None:
    gpu = dataclasses.replace(H200, memory=H200.memory + more)
    (small, few), (large, many) = (kv_pool(FACTS[name], one, layout, precision, True) for one in (H200, gpu))
    assert small <= large
    assert few <= many


@EXAMPLES
@given(models, engines(), precisions)
def test_an_engine_fills_its_share_and_no_more(name: str, layout: EngineLayout, precision: str) -> None:
    pool, tokens = kv_pool(FACTS[name], H200, layout, precision, True)
    made = engine_ledger(
        FACTS[name], H200, dataclasses.replace(layout, kv_bytes=pool, kv_tokens=tokens), precision, True
    )
    assert made.total == sum(entry.bytes for entry in made.entries)
    assert made.total == int(H200.memory * 0.9) or pool == 0
    whole = tokens // layout.max_model_len
    sequence = layout.max_model_len * kv_token_bytes(FACTS[name], layout, precision)
    assert whole * (sequence + sequence_bytes(FACTS[name], layout, precision)) <= pool


@EXAMPLES
@given(models, engines(), precisions)
def test_more_ranks_never_hold_more_weights(name: str, layout: EngineLayout, precision: str) -> None:
    wider = dataclasses.replace(layout, tp=2 * layout.tp, ep=2 * layout.ep if layout.ep > 1 else 1)
    facts = FACTS[name]
    narrow, wide = ({e.what: e.bytes for e in weight_entries(facts, one, precision)} for one in (layout, wider))
    assert all(wide[what] <= narrow[what] for what in narrow)
    assert sum(narrow.values()) <= 2.2 * facts.total_params + 2**32
