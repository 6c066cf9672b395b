"""Keys of prime-rl 0.6.0 to 0.8.x and what becomes of them; a table that is read from top to bottom.

Only keys whose names are on record stand here. Where the record names a key without its table, `name` is matched by the
end of a path; `roots` says in which blocks ('' above the roles). A name that ends in .* is a whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["mapped", "decided", "no counterpart", "not supported", "unknown", "overridden"]

ANY = ("", "trainer", "orchestrator", "inference")
TRAINER = ("", "trainer")
ORCHESTRATOR = ("", "orchestrator")
INFERENCE = ("inference",)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A key: where it may stand, what becomes of it and why. `convert` names a function of prlc.compiler.imports."""

    name: str
    roots: tuple[str, ...]
    verdict: Verdict
    reason: str
    convert: str = ""
    target: str = ""


def _to(name: str, roots: tuple[str, ...], target: str, convert: str, reason: str = "") -> Row:
    return Row(name=name, roots=roots, verdict="mapped", target=target, convert=convert, reason=reason)


def _row(verdict: Verdict, name: str, roots: tuple[str, ...], reason: str) -> Row:
    return Row(name=name, roots=roots, verdict=verdict, reason=reason)


ROWS = (
    # engine flags that prime-rl hands to vLLM; the rest of inference.vllm is looked up in the catalog's list of flags
    _to("enable_return_routed_experts", INFERENCE, "algorithm.router_replay", "flag"),
    _to("vllm.tensor_parallel_size", INFERENCE, "inference.tensor_parallel", "count"),
    _to("vllm.enable_expert_parallel", INFERENCE, "inference.expert_parallel", "flag"),
    _to("vllm.quantization", INFERENCE, "inference.precision", "fp8_name"),
    _row("decided", "max_model_len", INFERENCE, "engines take sequence.seq_len"),
    _row("decided", "max_num_seqs", INFERENCE, "derived from the KV cache that the ledger leaves"),
    _row("decided", "max_num_batched_tokens", INFERENCE, "derived with the engine's memory"),
    # lengths, batch, algorithm
    _to("seq_len", ("", "trainer", "orchestrator"), "sequence.seq_len", "count", "the larger of both sides"),
    _to("max_steps", ANY, "algorithm.max_steps", "count"),
    _to("batch_size", ORCHESTRATOR, "algorithm.batch_size", "count", "rollouts of a step"),
    _row("not supported", "token_batch_size", ORCHESTRATOR, "a batch is counted in rollouts: algorithm.batch_size"),
    _to("group_size", ORCHESTRATOR, "algorithm.group_size", "count"),
    _to("max_off_policy_steps", ORCHESTRATOR, "algorithm.max_off_policy_steps", "count_or_zero",
        "queue time counts here; in 0.6.0 and 0.8.0 it does not"),
    _to("max_inflight_rollouts", ORCHESTRATOR, "algorithm.max_inflight_groups", "groups", "rollouts / group_size"),
    _to("training_mode", ANY, "algorithm.name", "mode", "rl is grpo here"),
    _row("no counterpart", "num_examples", ORCHESTRATOR, "part of an environment's args: workload.environment"),
    _row("no counterpart", "retrigger_on_resume", ORCHESTRATOR, "evaluations follow algorithm.evaluate_every"),
    _row("not supported", "base_url", ORCHESTRATOR, "no frozen model of another server takes part in a run"),
    # mesh and memory of the trainer
    _to("ep", TRAINER, "trainer.parallel.ep", "degree", "auto is min(FSDP island, 8) there and solved for here"),
    _to("cp", TRAINER, "trainer.parallel.cp", "degree"),
    _to("dp_replicate", TRAINER, "trainer.parallel.dp_replicate", "count"),
    _to("nodes_per_fsdp_group", ("", "trainer"), "trainer.parallel.dp_shard", "island",
        "nodes x GPUs per node / cp"),
    _to("optim_cpu_offload", TRAINER, "trainer.optimizer.offload", "offload"),
    _row("not supported", "fsdp_cpu_offload", TRAINER,
         "parameters stay on the GPU; trainer.optimizer.offload moves state"),
    _to("fp8", TRAINER, "trainer.precision", "fp8_flag"),
    _to("quantization", TRAINER, "trainer.precision", "fp8_name"),
    _to("quantization.*", TRAINER, "trainer.precision", "fp8_detail"),
    _row("decided", "impl", ANY, "one implementation a model family, by the catalog"),
    _row("not supported", "trust_remote_code", ANY, "no code of a checkpoint is run"),
    _row("not supported", "save_adapter_separately", TRAINER, "every parameter is trained; there are no adapters"),
    _row("not supported", "max_lora_rank", ANY, "every parameter is trained; there are no adapters"),
    _row("decided", "dist_timeout", TRAINER, "each wait of the bundle has its own deadline"),
    # nodes and engines
    _to("tp", INFERENCE, "inference.tensor_parallel", "count"),
    _to("num_infer_nodes", ("",), "nodes", "infer_nodes", "trainer.nodes + these"),
    _to("deployment.num_nodes", INFERENCE, "nodes", "infer_nodes", "trainer.nodes + these"),
    _row("decided", "gpus_per_node", ("", "inference"), "the cluster file says it; it picks the cluster here"),
    _row("decided", "orchestrator_on_inference", ("",), "roles are placed by the plan"),
    _row("decided", "server.port", INFERENCE, "ports are a block from runtime.base_port"),
    _row("decided", "prefill_port", ("", "inference"), "ports are a block from runtime.base_port"),
    _row("decided", "decode_port", ("", "inference"), "ports are a block from runtime.base_port"),
    # the run, its folders and its services
    _to("run.dir", ("",), "runtime.run_dir", "run_dir", "output_dir/run.dir"),
    _to("output_dir", ("",), "runtime.run_dir", "run_dir", "output_dir/run.dir"),
    _row("decided", "output_dir", ("trainer", "orchestrator", "inference"), "every role keeps its files in "
         "runtime.run_dir"),
    _row("no counterpart", "resume.*", ANY, "a run goes on from its own run_dir; checkpoints of prime-rl are not read"),
    _row("no counterpart", "clean", ("",), "nothing is deleted on the way to a run"),
    _row("decided", "shared_fs", ("",), "runtime.venv names an environment that every node sees and no job changes"),
    _row("no counterpart", "env_vars.*", ANY, "the bundle sets the variables of its roles; a site sets its own where "
         "the job starts"),
    _row("decided", "broadcast.*", ANY, "the plan chooses how weights travel"),
    _row("decided", "transport.*", ANY, "the plan chooses how rollouts travel"),
    _row("decided", "tokenizer.*", ANY, "the checkpoint's own tokenizer"),
    _row("no counterpart", "wandb.*", ANY, "metrics are files and a Prometheus endpoint"),
)  # fmt: skip

# tables that are on record without the names of all their keys, and where prlc keeps such settings
TABLES = {
    "ckpt": "prlc's own: trainer.checkpoint_every, trainer.keep_checkpoints",
    "deployment": "prlc's own: nodes, trainer.nodes, inference.prefill_nodes, inference.decode_nodes",
    "model": "prlc's own: model, checkpoint, trainer.*",
}
