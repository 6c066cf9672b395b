"""Host memory by node and the run's files: sums, sharing, and what each setting changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from prlc import catalog
from prlc.catalog.replay import replay_bytes
from prlc.compiler.layout import EngineLayout, Layout, StoreLayout, TrainerLayout
from prlc.compiler.ledger.files import AHEAD, kept_batches
from prlc.compiler.ledger.host import host_ledgers
from prlc.compiler.ledger.nodes import pinned, rollout_tokens
from prlc.compiler.resolve import resolve
from prlc.compiler.rules.example import spec_text
from prlc.compiler.rules.memory import host_cure, over
from prlc.schema.plan import Ledger, LedgerEntry
from prlc.schema.run import RunSpec

from tests.compiler.ledger_layouts import GIB, engine, glm_mesh, mesh, part

QWEN = catalog.facts(catalog.model("qwen3-30b-a3b"))
GLM = catalog.facts(catalog.model("glm-5.1"))
TINY = catalog.facts(catalog.model("tiny-moe"))
CLUSTER = catalog.cluster("h200-28x8")
CPU = catalog.gpu("cpu")


def spec(**changed: Any) -> RunSpec:
    found, diagnostics = resolve(spec_text(changed), "run.yaml")
    assert found is not None, diagnostics
    return found.spec


def layout(trainer: TrainerLayout, *engines: EngineLayout, **changed: Any) -> Layout:
    base = Layout(
        target="slurm",
        nodes=28,
        trainer=trainer,
        engines=engines or (engine(nodes=(20,)),),
        orchestrator_node=trainer.nodes[0],
        router="vllm-router",
        router_node=20,
        store=None,
        router_replay=True,
        max_inflight_groups=32,
    )
    return dataclasses.replace(base, **changed)


def by_role(found: tuple[Ledger, ...]) -> dict[str, Ledger]:
    return {ledger.role: ledger for ledger in found}


def test_roles_that_share_a_node_are_added() -> None:
    apart = by_role(host_ledgers(spec(), QWEN, CLUSTER, layout(mesh(), orchestrator_node=1)))
    assert set(apart) == {"trainer node", "engine node", "orchestrator node", "run"}
    one = layout(mesh(), engine(nodes=(0,)))
    together = by_role(host_ledgers(spec(), QWEN, CLUSTER, one))
    assert set(together) == {"trainer + engine + orchestrator node", "run"}
    whole = together["trainer + engine + orchestrator node"]
    system = part(whole, "system")
    alone = sum(apart[f"{role} node"].phases.get("step", apart[f"{role} node"].total) - system
                for role in ("trainer", "engine", "orchestrator"))  # fmt: skip
    assert whole.phases["step"] - system == alone
    assert whole.total == sum(entry.bytes for entry in whole.peak)


def test_a_trainer_of_many_nodes_has_its_first_beside_the_orchestrator() -> None:
    found = by_role(host_ledgers(spec(), GLM, CLUSTER, layout(glm_mesh(12))))
    assert {"trainer + orchestrator node", "trainer node"} <= set(found)
    assert found["trainer + orchestrator node"].total > found["trainer node"].total


def test_offloaded_state_is_pinned_and_shared_by_the_nodes() -> None:
    def node(nodes: int, offload: str) -> Ledger:
        made = layout(glm_mesh(nodes, offload=offload))
        return by_role(host_ledgers(spec(), GLM, CLUSTER, made))["trainer node"]

    twelve = node(12, "cpu")
    params = GLM.total_params // 12
    assert part(twelve, "optimizer moments") == pytest.approx(8 * params, rel=1e-6)
    assert 8 * params <= part(twelve, "pinned masters and gradients") <= 16 * params
    six = node(6, "cpu")
    assert part(six, "optimizer moments") == 2 * part(twelve, "optimizer moments")
    assert twelve.total < twelve.capacity < node(5, "cpu").total
    assert "optimizer moments" not in {entry.what for entry in node(12, "none").entries}


def test_pinned_sizes_are_powers_of_two() -> None:
    assert [pinned(size) for size in (1, 2, 3, 4096, 4097)] == [1, 2, 4, 4096, 8192]


def test_every_rank_of_a_node_reads_the_whole_batch_and_packs_its_own_samples() -> None:
    found = by_role(host_ledgers(spec(), QWEN, CLUSTER, layout(mesh(), orchestrator_node=1)))
    tokens = 128 * rollout_tokens(spec())
    shares = mesh().dp_replicate * mesh().dp_shard
    assert part(found["trainer node"], "batches") == 8 * tokens * 18
    packed = part(found["trainer node"], "micro-batches with replay rows")
    assert packed == 8 * tokens * (49 + 8 * 48 * 8) // shares  # Qwen3-30B: 48 layers, 8 experts a token
    without = by_role(host_ledgers(spec(), QWEN, CLUSTER, layout(mesh(), orchestrator_node=1, router_replay=False)))
    assert part(without["trainer node"], "batches") == 8 * tokens * 17
    assert part(without["trainer node"], "micro-batches with replay rows") == 8 * tokens * 49 // shares


def test_files_that_wait_for_the_disk_take_a_share_of_what_is_free() -> None:
    found = by_role(host_ledgers(spec(), GLM, CLUSTER, layout(glm_mesh(12))))["trainer node"]
    free = found.capacity - sum(entry.bytes for entry in found.entries if entry.phase == "always")
    assert part(found, "checkpoint in the page cache") == int(0.2 * free)
    assert part(found, "policy in the page cache") == GLM.total_params * 2 // 12


def test_a_store_lends_memory_of_the_engines_nodes() -> None:
    store = StoreLayout(master_node=20, nodes=(20,), segment_bytes=1024 * GIB)
    found = by_role(host_ledgers(spec(), QWEN, CLUSTER, layout(mesh(), store=store)))
    assert part(found["engine node"], "store segment") == 1024 * GIB
    assert part(found["engine node"], "engine store buffers") == 8 * 4 * GIB


def test_processes_of_a_cpu_cluster_are_host_memory_of_their_node() -> None:
    trainer = mesh(ranks_per_node=1, dp_shard=1, micro_batch_tokens=64)
    server = engine(dp=1, ep=1, all2all="none", gpu_memory_utilization=0.0, max_num_batched_tokens=2048, kv_bytes=GIB)
    made = layout(trainer, server, orchestrator_node=0)
    cluster = catalog.cluster("local-cpu")
    small = spec(model="tiny-moe", cluster="local-cpu", sequence={"seq_len": 2048})
    (node, _) = host_ledgers(small, TINY, cluster, made, CPU)
    assert part(node, "engine processes") > GIB
    assert part(node, "trainer processes") > GIB // 2
    assert node.capacity == int(cluster.node.memory)


def test_files_of_a_run_count_what_is_kept_and_what_is_being_written() -> None:
    files = host_ledgers(spec(trainer={"keep_checkpoints": 4}), QWEN, CLUSTER, layout(mesh()))[-1]
    assert (files.resource, files.capacity) == ("filesystem", 0)
    assert part(files, "checkpoints") == QWEN.total_params * 12 * 5
    assert part(files, "published policies") == QWEN.total_params * 2 * (3 + 4 + 2)
    one = 128 * rollout_tokens(spec()) * (17 + replay_bytes(QWEN).kept + 1)
    assert part(files, "batches") == (4 * 20 + 2) * one
    stated = dataclasses.replace(CLUSTER, filesystem=10**15)
    assert host_ledgers(spec(), QWEN, stated, layout(mesh()))[-1].capacity == 10**15


@pytest.mark.parametrize(
    ("steps", "every", "keep"), [(97, 5, 2), (100, 5, 1), (60, 20, 3), (30, 20, 2), (7, 20, 2), (97, 5, 0)]
)
def test_batches_kept_are_the_most_that_a_run_holds(steps: int, every: int, keep: int) -> None:
    """Against a run step by step: the orchestrator ships as far ahead as it may, then retires."""
    most, checkpoints = 0, list[int]()
    for version in range(steps + 1):
        oldest = checkpoints[0] if checkpoints else 0
        shipped = min(steps, version + AHEAD)
        most = max(most, shipped - oldest)
        if version and (version % every == 0 or version == steps):
            checkpoints = [*checkpoints, version][-keep:] if keep else [*checkpoints, version]
    assert kept_batches(steps, every, keep)[0] == most


def test_a_host_ledger_that_does_not_fit_names_its_cure() -> None:
    entries = (
        LedgerEntry(what="system", phase="always", bytes=GIB, formula="1 GiB"),
        LedgerEntry(what="optimizer moments", phase="always", bytes=9 * GIB, formula="9 GiB"),
        LedgerEntry(what="checkpoint in the page cache", phase="checkpoint", bytes=GIB, formula="1 GiB"),
    )
    full = Ledger(role="trainer node", resource="host", capacity=10 * GIB, entries=entries)
    assert over(full) == "11.0 GiB in phase checkpoint > 10.0 GiB; the largest part is optimizer moments, 9.0 GiB"
    assert host_cure(full) == "trainer.optimizer.offload: none, or more trainer nodes"
