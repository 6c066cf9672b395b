"""The port ledger: none twice on a node."""

from prlc.compiler.bundle.ports import DATA_PARALLEL_MASTER_PORTS, port_ledger
from prlc.compiler.layout import EngineLayout


def test_no_port_is_given_twice_on_a_node_and_ranges_are_kept_free() -> None:
    engine = EngineLayout(
        role="engine",
        nodes=(1, 2),
        replicas=2,
        tp=1,
        dp=8,
        ep=8,
        all2all="allgather_reducescatter",
        max_model_len=4096,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=0.9,
        kv_bytes=1,
        kv_tokens=1,
    )
    uses = port_ledger(20000, (engine,), 0, 0, 0, None)
    given: set[tuple[int, int]] = set()
    for use in uses:
        width = DATA_PARALLEL_MASTER_PORTS if use.purpose == "data_parallel_master" else 1
        wide = {(use.node, use.port + i) for i in range(width)}
        assert not wide & given
        given |= wide
    assert {u.node for u in uses if u.role == "engine" and u.index >= 8} == {2}
