"""The layout that the compiler chose: plain frozen values, no arithmetic beyond counting ranks.

`solve` makes it, the ledgers and the forecast judge it, `launch` turns it into commands. Node numbers are
indexes in the allocation; GPUs are local indexes on their node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prlc.catalog import Model, ModelFacts
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.orchestrator import OrchestratorConfig
    from prlc.schema.run import RunSpec
    from prlc.schema.topology import Topology
    from prlc.schema.trainer import TrainerConfig

EngineKind = Literal["engine", "prefill", "decode"]
All2All = Literal["none", "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"]


@dataclass(frozen=True, kw_only=True)
class TrainerLayout:
    """The trainer's mesh on its nodes; world = len(nodes) x ranks_per_node = dp_replicate x dp_shard x cp."""

    nodes: tuple[int, ...]
    ranks_per_node: int
    dp_replicate: int
    dp_shard: int
    cp: int
    ep: int
    offload: Literal["none", "cpu"]
    activation_checkpoint: Literal["none", "selective", "full"]
    micro_batch_tokens: int  # tokens of one micro-batch on one rank, after the cp split
    optimizer: Literal["adamw", "muon"] = "adamw"

    @property
    def world(self) -> int:
        """Ranks of the trainer."""
        return len(self.nodes) * self.ranks_per_node


@dataclass(frozen=True, kw_only=True)
class EngineLayout:
    """All replicas of one engine role. A replica is dp vLLM servers of tp GPUs each; servers do not span nodes.

    Server i (0 .. replicas*dp-1) has group i // dp and data-parallel rank i % dp; the servers of a replica fill
    its nodes in order. ep is tp*dp when experts are sharded over the replica, else 1.
    """

    role: EngineKind  # also the role's name in the topology
    nodes: tuple[int, ...]
    replicas: int
    tp: int
    dp: int
    ep: int
    all2all: All2All
    max_model_len: int  # tokens
    max_num_seqs: int  # sequences a server
    max_num_batched_tokens: int  # tokens of one step of a server
    gpu_memory_utilization: float  # of HBM; 0 on a CPU
    kv_bytes: int  # KV pool of one server's GPU (CPU: of the server), bytes
    kv_tokens: int  # KV pool of one server, tokens

    @property
    def servers(self) -> int:
        """vLLM servers of the role."""
        return self.replicas * self.dp

    @property
    def expert_parallel(self) -> bool:
        """True when experts are sharded over the replica's ranks."""
        return self.ep > 1

    @property
    def gpus(self) -> int:
        """GPUs of the role."""
        return self.servers * self.tp


@dataclass(frozen=True, kw_only=True)
class StoreLayout:
    """Mooncake store behind the KV cache: a master on one node and a DRAM segment on each node listed."""

    master_node: int
    nodes: tuple[int, ...]
    segment_bytes: int  # a node


@dataclass(frozen=True, kw_only=True)
class PortUse:
    """One port that one process listens on."""

    node: int
    port: int
    role: str
    index: int  # process index in the role
    purpose: str  # http, rendezvous, data_parallel_rpc, side_channel, metrics, ...


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything that was chosen."""

    target: Literal["slurm", "local"]
    nodes: int  # nodes of the allocation
    trainer: TrainerLayout
    engines: tuple[EngineLayout, ...]  # (engine,) or (prefill, decode)
    orchestrator_node: int
    router: Literal["direct", "vllm-router"]
    router_node: int
    store: StoreLayout | None
    router_replay: bool
    max_inflight_groups: int
    ports: tuple[PortUse, ...] = ()

    def port(self, role: str, index: int, purpose: str) -> int:
        """The port of one process. Raises KeyError if the ledger has none."""
        for use in self.ports:
            if (use.role, use.index, use.purpose) == (role, index, purpose):
                return use.port
        raise KeyError(f"no port {purpose!r} for {role}-{index}")


@dataclass(frozen=True, kw_only=True)
class LaunchInputs:
    """What `prlc.compiler.bundle.launch.launches` turns into Launch tuples: all of it decided already.

    Purposes in `layout.ports`: trainer 0 rendezvous (on trainer node 0); each engine server http, and side_channel
    where prefill and decode are apart; server with data_parallel_rank 0 of a replica with dp > 1 also
    data_parallel_rpc (one port) and data_parallel_master (32 ports from it are kept free); router http and metrics;
    store 0 rpc and metrics; orchestrator metrics.
    """

    spec: RunSpec
    model: Model
    facts: ModelFacts
    gpu: Gpu
    cluster: Cluster
    layout: Layout
    topology: Topology
    trainer: TrainerConfig
    orchestrator: OrchestratorConfig
