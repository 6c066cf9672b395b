"""The forecast as a tree of terms: each with its formula, its source and a band from rows that no fit had seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prlc.compiler.forecast.rates import RUNTIME
from prlc.compiler.forecast.sync import PUBLISHED_WIDTH
from prlc.schema.kernels import Band
from prlc.schema.plan import Term

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.step import StepTime
    from prlc.compiler.layout import Layout
    from prlc.schema.hardware import Cluster, Gpu
    from prlc.schema.run import RunSpec

CHOICE = Band(low=1.0, high=1.0, error=0.0, rows=0, source="")
TRAINER = {  # coefficient -> (name, what it is)
    "gemm": ("GEMM", "FLOPs of dense weights x passes at the GPU's rate"),
    "head": ("LM head", "FLOPs of the head, chunked and recomputed"),
    "attention": ("attention", "FLOPs of causal attention x passes"),
    "indexer": ("indexer", "FLOPs of sparse attention's scores"),
    "logits": ("logits", "bytes of fp32 logits"),
    "elementwise": ("elementwise", "bytes of activations outside GEMMs"),
    "quantize": ("fp8 casts", "bytes of activations that are cast"),
    "linear": ("recurrent layers", "bytes of their scans"),
    "launch": ("launches", "layers x micro-batches x passes"),
    "step": ("step overhead", "batch, metrics and loss statistics"),
    "grouped": ("grouped GEMM", "FLOPs of routed experts at the rate of their rows, times imbalance"),
    "routing": ("routing", "bytes of permuted rows, times imbalance"),
    "exchange": ("expert all-to-all", "dispatch and combine of each MoE layer and pass, times imbalance"),
    "fsdp_intra": ("FSDP traffic", "2 gathers + 1 reduce-scatter a micro-batch inside a node, exposed share"),
    "fsdp_inter": ("FSDP traffic", "2 gathers + 1 reduce-scatter a micro-batch across nodes, exposed share"),
    "replicate": ("HSDP reduction", "fp32 gradients of a shard across replicas"),
    "context": ("context-parallel gathers", "K and V, or the latent row, of each attention layer and pass"),
    "optimizer": ("optimizer", "28 B a parameter of the shard from HBM"),
    "host_copies": ("shards and gradients over PCIe", "fp32 shards up for 2 gathers, gradients down, a micro-batch"),
    "host_optimizer": ("optimizer", "28 B a parameter of the shard through host memory"),
}
HIDDEN = 0.002  # share of the step below which a term is folded into the others


def tree(spec: RunSpec, facts: ModelFacts, gpu: Gpu, cluster: Cluster, layout: Layout, t: StepTime) -> Term:
    """trainer step, rollouts, weight sync; then lag, drops, in flight and idle shares."""
    parts = (_trainer(t, facts, layout), _rollouts(spec, t), _sync(spec, t, facts, layout))
    trainer, rollouts, sync = parts
    return Term(
        name="step",
        unit="s",
        low=max(trainer.low, rollouts.low) + sync.low,
        expected=t.seconds,
        high=max(trainer.high, rollouts.high) + sync.high,
        formula=f"max(trainer {trainer.expected:.4g}, rollouts {rollouts.expected:.4g}) + sync {sync.expected:.4g}",
        source=f"its parts; coefficients of kernels {t.rates.document.name}; the band joins theirs",
        extrapolated=any(part.extrapolated for part in parts),
        terms=(*parts, *_informative(spec, t, layout)),
    )


def _term(
    name: str,
    value: float,
    formula: str,
    source: str,
    band: Band,
    unit: str = "s",
    extrapolated: bool = False,
    terms: tuple[Term, ...] = (),
) -> Term:
    if band is CHOICE:
        basis = "no band"
    elif band.rows:
        basis = f"90 % band from {band.rows} rows left out of the fit, mean error {band.error:.0%}"
    else:
        basis = "band assumed"
    return Term(
        name=name,
        unit=unit,
        low=value * min(1.0, band.low),
        expected=value,
        high=value * max(1.0, band.high),
        formula=formula,
        source=f"{source}; {basis}",
        extrapolated=extrapolated,
        terms=terms,
    )


def _trainer(t: StepTime, facts: ModelFacts, layout: Layout) -> Term:
    band, s, mesh = t.rates.band("trainer"), t.trainer.shape, layout.trainer
    document, whole = t.rates.document.trainer, t.trainer.seconds
    room = {name: document.get(f"{name}@{RUNTIME}", document[name]) for name in t.trainer.terms}
    shown = [(name, value) for name, value in t.trainer.terms.items() if value >= HIDDEN * whole]
    rest = whole - sum(value for _, value in shown)
    beyond = " ".join(t.trainer.extrapolated)
    terms = [
        _term(
            TRAINER[name][0],
            value,
            f"{TRAINER[name][1]} x {room[name].value:.4g} {room[name].unit}",
            room[name].source,
            band,
            extrapolated=(name == "exchange" and "all-to-all" in beyond)
            or (name.startswith("fsdp") and "FSDP" in beyond)
            or (name in ("attention", "indexer", "linear") and "attention" in beyond),
        )
        for name, value in shown
    ]
    if rest > 1e-9:
        terms.append(_term("other", rest, f"terms below {HIDDEN:.1%} of the step", "the same rows", band))
    return _term(
        "trainer step",
        whole,
        f"{s.tokens:.0f} tokens a rank in {s.micro_batches} micro-batches, mean context {s.context:.0f}, "
        f"{mesh.activation_checkpoint} recompute, ep {mesh.ep}, {facts.active_params} active params: sum of its parts",
        f"training rows of {t.rates.document.software['trainer']}",
        band,
        extrapolated=bool(t.trainer.extrapolated),
        terms=tuple(terms),
    )


def _rollouts(spec: RunSpec, t: StepTime) -> Term:
    e, load, rates = t.engine, t.load, t.rates
    decode, prefill = rates.band("decode"), rates.band("prefill")
    beyond = " ".join(e.extrapolated)
    turn = load.output * e.decode_step
    cycle = max(1e-9, turn + load.tool + e.prefill_turn + e.prefill_wait + e.transfer)
    # the tools' time is the spec's: only the engines' share of a turn is in doubt
    ours = min(1.0, (cycle - load.tool) / cycle) if e.waiting <= 0 else 1.0
    band = Band(
        low=1 - ours * (1 - decode.low),
        high=1 + ours * (decode.high - 1),
        error=decode.error,
        rows=decode.rows,
        source=decode.source,
    )
    terms = (
        _term("decode step", e.decode_step, f"{e.batch:.1f} sequences a server of {load.context:.0f} cached tokens, "
              f"{e.decode_use:.0%} of its slots; the busiest rank's",
              f"decode rows of {rates.document.software['engine']}", decode, extrapolated="decode" in beyond),
        _term("prefill of a turn", e.prefill_turn, f"{load.prefill:.0f} new tokens + {1 - e.prefix_hit:.0%} of "
              f"{load.prefix:.0f} before; its servers are busy {e.prefill_use:.0%}",
              "first-token and sparse-attention rows", prefill, extrapolated="prefill" in beyond),
        _term("wait for prefill", e.prefill_wait, f"pool of servers busy {e.prefill_use:.0%}", "Sakasegawa 1977",
              prefill),
        _term("KV transfer", e.transfer, "start + KV bytes of a turn over the network, and what the store gives back",
              rates.document.network["store"].source, rates.band("sync")),
        _term("tool time of a turn", load.tool, "workload.tool_time", "run spec", CHOICE),
    )  # fmt: skip
    return _term(
        "rollouts",
        t.rollouts,
        f"batch {spec.algorithm.batch_size} / ({e.turns_per_second:.4g} turns/s / {load.turns:.3g} turns x "
        f"(1 - dropped {t.dropped:.4g})) with {e.in_flight:.0f} in flight",
        "closed network of decode, prefill, transfers and tools",
        band,
        extrapolated=bool(e.extrapolated),
        terms=terms,
    )


def _sync(spec: RunSpec, t: StepTime, facts: ModelFacts, layout: Layout) -> Term:
    width, nodes = PUBLISHED_WIDTH[spec.inference.precision], len(layout.trainer.nodes)
    readers = len({n for e in layout.engines for n in e.nodes})
    room = t.rates.document.network
    return _term(
        "weight sync",
        t.sync,
        f"{facts.total_params} params x {width} B: pause {t.pause:.4g} of engines that read on {readers} nodes at "
        f"{room['filesystem_read'].value / 1e9:.3g} GB/s + write {t.write:.4g} by {nodes} nodes at "
        f"{room['filesystem_write'].value / 1e9:.3g} GB/s less what rollouts hide",
        room["filesystem_write"].source,
        t.rates.band("sync"),
        extrapolated=nodes > 1 or readers > 1,
    )


def _informative(spec: RunSpec, t: StepTime, layout: Layout) -> tuple[Term, ...]:
    algorithm, band = spec.algorithm, t.rates.band("rollouts")
    bound, batch = algorithm.max_off_policy_steps, algorithm.batch_size
    law = "Little's law in version units, lognormal durations"
    inputs = f"N {t.in_flight} in flight / B {batch}, s {t.load.sigma:.2f}, bound {bound}"
    return (
        _term("lag", t.lag.mean, f"mean of those below the bound + 0.8 of queue; {inputs}", law, band, "versions"),
        _term("lag p95", t.lag.p95, f"95th percentile of the same; {inputs}", law, band, "versions"),
        _term("dropped", t.dropped, f"Q((ln(K B / N) + s^2/2) / s); {inputs}", law, band, "1"),
        _term("wasted work", t.lag.wasted, f"share of generated work in dropped rollouts; {inputs}", law, band, "1"),
        _term("in-flight groups", layout.max_inflight_groups,
              f"{layout.max_inflight_groups} groups of {algorithm.group_size}; {t.engine.waiting:.0f} rollouts wait "
              "for a slot",
              "layout", CHOICE, "groups"),
        _term("trainer idle", t.trainer_idle, "1 - trainer step / step", "the parts above", band, "1"),
        _term("engines idle", t.engines_idle, "1 - rollouts / step", "the parts above", band, "1"),
        _term("prefix hits", t.engine.prefix_hit, f"{t.rates.loop['prefix_hit']:.0%} where kept; the KV pools keep "
              f"{t.engine.in_hbm:.0%}: {t.engine.pool:.3g} tokens for {t.engine.working_set:.3g} alive",
              t.rates.document.loop["prefix_hit"].source, band, "1"),
    )  # fmt: skip
