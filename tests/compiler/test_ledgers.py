"""Ledgers against published figures and against their own sums."""

from typing import Literal

from prlc.compiler.layout import TrainerLayout
from prlc.compiler.ledger_engine import all2all_entry, kv_tokens, low_latency_bytes, weights_entry
from prlc.compiler.ledger_trainer import TrainerShape, trainer_ledger
from prlc.schema.plan import Ledger

GLM = TrainerShape(
    layers=78,
    moe_layers=75,
    hidden=6144,
    vocab=154880,
    dense_params=19_135_487_232,
    routed_params=724_775_731_200,
    active_ffn_width=9 * 2048,
    top_k=8,
    gathered_kv_width=576,
)
CARD = 140 * 2**30


def ledger(ep: int, offload: Literal["none", "cpu"] = "cpu") -> Ledger:
    mesh = TrainerLayout(
        nodes=tuple(range(12)),
        ranks_per_node=8,
        dp_replicate=1,
        dp_shard=24,
        cp=4,
        ep=ep,
        offload=offload,
        activation_checkpoint="full",
        micro_batch_tokens=32768,
    )
    entries = trainer_ledger(GLM, mesh, tokens=32768, capacity=CARD)
    return Ledger(role="trainer", resource="hbm", capacity=CARD, entries=entries)


def test_total_is_the_sum_of_its_entries() -> None:
    made = ledger(8)
    assert made.total == sum(e.bytes for e in made.entries) > 0


def test_experts_over_ranks_shrink_what_is_gathered_and_not_the_state() -> None:
    one, eight = ({e.what: e.bytes for e in ledger(n).entries} for n in (1, 8))
    assert eight["gathered units"] < one["gathered units"] / 6
    assert eight["sharded state"] == one["sharded state"]


def test_offload_halves_the_state() -> None:
    options: tuple[Literal["none", "cpu"], ...] = ("none", "cpu")
    there, gone = ({e.what: e.bytes for e in ledger(8, o).entries}["sharded state"] for o in options)
    assert there == 2 * gone


def test_low_latency_buffers_match_the_published_sizes() -> None:
    for tokens, hidden, experts, mib in (
        (128, 7168, 256, 1820),
        (256, 4096, 128, 1040),
        (256, 7168, 384, 5460),
    ):
        assert round(low_latency_bytes(tokens, hidden, experts) / 2**20) in range(mib - 2, mib + 3)
    assert all2all_entry("none", tokens=1, hidden=1, experts=1, multi_node=False).bytes == 0


def test_weights_and_pool() -> None:
    entry = weights_entry(
        dense_params=80, replicated_params=10, routed_params=640, tp=8, ep=64, bytes_per_param=2.0
    )
    assert entry.bytes == (10 + 10 + 10) * 2
    assert kv_tokens(capacity=100, utilization=0.5, resident=60, bytes_per_token=1) == 0
    assert kv_tokens(capacity=1000, utilization=0.9, resident=100, bytes_per_token=8) == 100
