"""Decisions on values that are no degree of the layout: limits, folders, ports, times and settings of engines."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from prlc.compiler.bundle.configs import turn_limits
from prlc.compiler.bundle.ports import port_base
from prlc.compiler.bundle.slurm import signal_seconds
from prlc.schema.codec import format_quantity
from prlc.schema.plan import Decision

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.compiler.search.solve import Choice
    from prlc.schema.plan import Plan


def derived(resolved: Resolved, choice: Choice, plan: Plan) -> tuple[Decision, ...]:
    """One a value; those that the spec holds and the plan keeps are left out."""
    spec, layout = resolved.spec, choice.layout
    work = spec.workload
    tokens, turns = turn_limits(resolved)
    sides = {engine.role: len(engine.nodes) for engine in layout.engines}
    apart = f"nodes of the {'two sides' if len(sides) > 1 else 'engines, which do both'}"
    goal = spec.objective
    minimize = f"minimize: {goal.minimize}" if goal.minimize else ""
    wanted = minimize or f"step_time: {format_quantity(goal.step_time or 0.0, 'seconds')}"
    found = [
        Decision(
            path="objective",
            asked=wanted if resolved.said("objective") else "(absent)",
            value=wanted,
            rule="rank",
            reason=f"a step of {choice.step:.1f} s on {choice.gpus} GPUs",
        ),
        Decision(
            path="target",
            asked=spec.target,
            value=layout.target,
            rule="launcher",
            reason=f"{resolved.cluster.name} has the launcher {resolved.cluster.launcher}",
        ),
        Decision(
            path="workload.max_output_tokens_per_turn",
            asked=str(work.max_output_tokens_per_turn),
            value=str(tokens),
            rule="turn_limits",
            reason=_limit(work.output_tokens_per_turn.p95, work.output_tokens_per_turn.mean, spec.sequence.seq_len),
        ),
        Decision(
            path="workload.max_turns",
            asked=str(work.max_turns),
            value=str(turns),
            rule="turn_limits",
            reason=_limit(work.turns.p95, work.turns.mean, None),
        ),
        *(
            Decision(
                path=f"inference.{side}_nodes",
                asked=str(getattr(spec.inference, f"{side}_nodes")),
                value=str(sides.get(side, 0)),
                rule="solve",
                reason=apart,
            )
            for side in ("prefill", "decode")
        ),
        Decision(
            path="runtime.run_dir",
            asked=spec.runtime.run_dir,
            value=plan.run_dir,
            rule="run_dir",
            reason="runs/NAME beside the bundle" if spec.runtime.run_dir == "auto" else "as the spec says",
        ),
        Decision(
            path="runtime.base_port",
            asked=str(spec.runtime.base_port),
            value=str(port_base(resolved.cluster, spec)),
            rule="port_base",
            reason=f"a block of {resolved.cluster.name}'s range from {resolved.cluster.base_port}, by the run's name",
        ),
        Decision(
            path="checkpoint",
            asked=spec.checkpoint or "(absent)",
            value=plan.model.checkpoint,
            rule="checkpoint_path",
            reason="as the spec says" if spec.checkpoint else f"the published weights of {resolved.model.name}",
        ),
    ]
    low, high = plan.trainer.loss.ratio_low, plan.trainer.loss.ratio_high
    bounds = spec.algorithm.ratio_bounds
    found.append(
        Decision(
            path="algorithm.ratio_bounds",
            asked="auto" if bounds == "auto" else f"{bounds[0]:g}, {bounds[1]:g}",
            value=f"{low:g}, {high:g}",
            rule="ratio_bounds",
            reason=f"of the loss {spec.algorithm.loss}",
        )
    )
    if layout.target == "slurm":
        found += _job(resolved, choice, plan)
    found += [
        Decision(
            path="trainer.micro_batch_tokens",
            asked="(no key)",
            value=str(plan.trainer.micro_batch_tokens),
            rule="micro_batch_tokens",
            reason=f"{spec.sequence.seq_len} tokens of a sample over cp {layout.trainer.cp}",
        ),
        Decision(
            path="trainer.publish_dtype",
            asked="(no key)",
            value=plan.trainer.publish_dtype,
            rule="publish_dtype",
            reason=f"engines compute in {spec.inference.precision}",
        ),
    ]
    for engine in layout.engines:
        for name, reason in (
            ("all2all", f"{engine.ep} ranks share experts" if engine.ep > 1 else "every server has all experts"),
            ("max_num_seqs", "sequences a server, the batch of its CUDA graphs"),
            ("max_num_batched_tokens", "tokens of a step; DeepEP's low-latency buffers grow with them"),
            ("gpu_memory_utilization", "share of HBM; the ledger has what it holds"),
            ("kv_tokens", f"{engine.kv_bytes / 2**30:.1f} GiB that weights and workspaces leave"),
        ):
            value = getattr(engine, name)
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            found.append(
                Decision(path=f"{engine.role}.{name}", asked="(no key)", value=shown, rule="engine_side", reason=reason)
            )
    return tuple(_words(decision) for decision in found)


def _limit(p95: float | None, mean: float, longest: int | None) -> str:
    base = f"the 95th percentile, {p95:g}" if p95 is not None else f"twice the mean of {mean:g}"
    return base + (f", at most a sample of {longest}" if longest else "")


def _job(resolved: Resolved, choice: Choice, plan: Plan) -> list[Decision]:
    slurm = resolved.spec.slurm
    written = dict(plan.slurm.options)
    found = [
        Decision(
            path="slurm.signal_time",
            asked="auto" if slurm.signal_time == "auto" else format_quantity(float(slurm.signal_time), "seconds"),
            value=f"{signal_seconds(slurm, choice.step)}s",
            rule="signal_seconds",
            reason=f"two steps of {choice.step:.0f} s and a minute, at least 120 s, at most 65535 s",
        )
    ]
    if slurm.time is not None:
        found.append(
            Decision(
                path="slurm.time",
                asked=format_quantity(slurm.time, "seconds"),
                value=written["time"],
                rule="slurm_options",
                reason="whole minutes, as sbatch counts them",
            )
        )
    return found


def _words(decision: Decision) -> Decision:
    """With `asked` as the spec writes it."""
    return dataclasses.replace(decision, asked={"True": "true", "False": "false"}.get(decision.asked, decision.asked))
