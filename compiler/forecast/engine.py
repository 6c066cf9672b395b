"""Rollouts a second of the engines: a closed network of decode, prefill, KV transfer and tools.

A fixed number of rollouts is in flight; each turn waits for its tools, for prefill and for its tokens. Sources:
LRU stack distances (Che, Tung, Wang 2002) for the share of prefixes still cached; Sakasegawa 1977 for the wait of a
pool of servers; least-loaded ranks of a lockstep group by the extreme of Poisson loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.compiler.forecast.decode import (
    DecodeCost,
    ServeShape,
    decode_cost,
    prefill_features,
    prefill_seconds,
    scaled,
)
from prlc.compiler.forecast.loop import Work, capped_moment, normal_below
from prlc.compiler.ledger.engine import kv_token_bytes

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates
    from prlc.compiler.layout import EngineLayout
    from prlc.schema.hardware import Cluster, Gpu

PREFILL_BATCH = 8  # turns that share one prefill step at most
ITERATIONS, CLOSE = 60, 1e-9  # of the batch at which the network settles; share of the rollouts alive
HIT_BISECTIONS, LIFE_BISECTIONS = 10, 24
MOVES_LEAST = 128  # new tokens of a turn below which decode engines prefill it themselves rather than move KV


@dataclass(frozen=True, kw_only=True)
class EngineTime:
    """What the closed network settles at."""

    rollouts_per_second: float
    turns_per_second: float
    in_flight: float  # rollouts
    batch: float  # sequences of one decode server
    decode_step: float  # s, of the slowest rank
    prefill_turn: float  # s of one server for one turn, alone
    prefill_wait: float  # s in its queue
    transfer: float  # s of a turn's KV between engines or out of the store
    prefix_hit: float  # share of a turn's prefix that is found in a cache or store
    in_hbm: float  # share of prefixes that the KV pools still hold when their turn comes
    working_set: float  # tokens of all conversations alive
    pool: float  # tokens that the KV pools hold
    prefill_use: float  # busy share of the servers that prefill
    decode_use: float  # sequences at once, of those that a server may have
    waiting: float  # rollouts that no decode slot is free for
    extrapolated: tuple[str, ...]  # names of inputs beyond the data


def serve_shape(engine: EngineLayout, precision: str, cluster: Cluster) -> ServeShape:
    """The engine as the decode and prefill formulas see it."""
    return ServeShape(
        tp=engine.tp,
        ep=engine.ep,
        precision=precision,
        servers=engine.dp if engine.expert_parallel else 1,
        intra=cluster.node.intra_bandwidth,
        low_latency=engine.all2all == "deepep_low_latency" or engine.ep > cluster.node.gpus,
    )


def slowest(batch: float, ranks: int, share: float) -> float:
    """Sequences of the busiest of `ranks` servers with `batch` each on the mean; `share` of Poisson's extreme.

    >>> round(slowest(8, 64, 1.0), 1)
    16.2
    """
    return batch + share * math.sqrt(2 * max(batch, 0.0) * math.log(ranks)) if ranks > 1 else batch


def cached_share(pool: float, working_set: float, cycle: float, pause: float, sigma: float) -> float:
    """Share of prefixes that an LRU pool still holds when their conversation returns.

    A conversation is active for cycle - pause and then pauses, lognormally, E[pause] < cycle. In a window of t the
    others touch working_set x (cycle - pause + E[min(pause, t)]) / cycle tokens; a prefix is gone when that exceeds
    the pool (Che, Tung, Wang 2002, with renewals).

    >>> cached_share(10, 5, 20, 10, 1.0), cached_share(1, 10, 20, 10, 1.0), cached_share(6, 10, 20, 10, 0.0)
    (1.0, 0.0, 0.0)
    >>> round(cached_share(8, 10, 20, 10, 1.0), 2)
    0.67
    """
    if working_set <= pool:
        return 1.0
    needed = cycle * pool / working_set - (cycle - pause)  # E[min(pause, t)] at which the pool is full
    if needed <= 0 or pause <= 0 or sigma == 0:
        return 0.0
    low, high = -4.0 - 4 * sigma, 4.0 + 6 * sigma  # logarithm of t over the pause
    for _ in range(LIFE_BISECTIONS):
        middle = (low + high) / 2
        if capped_moment(pause, sigma, pause * math.exp(middle), 1) < needed:
            low = middle
        else:
            high = middle
    return normal_below(((low + high) / 2 + sigma**2 / 2) / sigma)


def queue_wait(busy: float, servers: int, service: float, sigma: float) -> float:
    """Mean wait for one of `servers`; service times vary as their lognormal tokens do."""
    busy = min(busy, 0.98)
    spread = (math.exp(sigma**2) - 1 + 1) / 2
    return float(service * busy ** (math.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - busy)) * spread)


@dataclass(frozen=True)
class _Pools:
    """What one engine layout offers, priced once."""

    decode: EngineLayout
    prefill: EngineLayout
    apart: bool
    cost: DecodeCost
    most: float  # sequences of one decode server
    share: float  # of Poisson's extreme that the router leaves between ranks
    prefill_use: float  # busy share of prefill engines beyond which their queue grows without bound

    def step(self, batch: float, context: float) -> float:
        """Seconds of a decode step of the slowest rank."""
        ranks = self.decode.dp if self.decode.expert_parallel else 1
        return self.cost.seconds(slowest(batch, ranks, self.share), context)


@dataclass(frozen=True)
class _Network:
    """One settled state."""

    rate: float  # turns a second
    batch: float  # sequences of a decode server
    step: float  # s
    wait: float  # s for prefill
    waiting: float  # rollouts without a decode slot
    alone: float  # s of one turn's prefill
    full: float  # s of one turn when turns are batched
    moved: float  # s of KV on the wire
    hit: float


def engine_time(
    facts: ModelFacts,
    gpu: Gpu,
    cluster: Cluster,
    rates: Rates,
    engines: tuple[EngineLayout, ...],
    precision: str,
    load: Work,
    in_flight: int,
    store_tokens: float,
) -> EngineTime:
    """Settle the network: `in_flight` rollouts; `store_tokens` KV tokens fit into a store in host memory (0: none)."""
    prefill, decode = engines[0], engines[-1]
    apart = len(engines) > 1
    shape = serve_shape(decode, precision, cluster)
    turns = serve_shape(prefill, precision, cluster)
    pools = _Pools(
        decode,
        prefill,
        apart,
        scaled(decode_cost(facts, gpu, rates, shape), rates, facts, shape),
        max(1.0, min(float(decode.max_num_seqs), decode.kv_tokens / max(1.0, load.context))),
        rates.loop["rank_imbalance"],
        rates.loop["prefill_use"],
    )
    pool = float(prefill.servers * prefill.kv_tokens)
    alive = float(max(1, in_flight))
    working_set = alive * load.context
    base, row_bytes = rates.loop["prefix_hit"], kv_token_bytes(facts, prefill, precision)

    def settle(held: float) -> _Network:
        """The network when the KV pools hold this share of prefixes until their turn comes."""
        kept = max(held, min(1.0, store_tokens / working_set))
        hit = base * kept
        new = load.prefill + (1 - hit) * load.prefix
        together = max(1.0, min(PREFILL_BATCH, prefill.max_num_batched_tokens / max(1.0, new)))
        past = load.prefix * hit
        alone = _prefill(facts, gpu, rates, turns, new, past, 1.0)
        full = _prefill(facts, gpu, rates, turns, new, past, together) / together if together > 1 else alone
        moved = _moved(rates, cluster, load, row_bytes, apart, kept - held)
        return _settle(pools, load, alive, alone, full, moved, hit)

    def lives(network: _Network) -> float:
        """The share that an LRU pool then holds: prefill engines apart do not see a conversation while it decodes."""
        cycle = alive / network.rate
        pause = min(cycle, max(load.tool, cycle - network.alone - network.wait) if apart else load.tool)
        spread = load.tool**2 * (math.exp(load.tool_sigma**2) - 1) / max(pause, 1e-9) ** 2
        return cached_share(pool, working_set, cycle, pause, math.sqrt(math.log(1 + spread)))

    held = min(1.0, pool / working_set)
    network = settle(held)
    if held < 1:
        if store_tokens < working_set:
            # the faster the turns, the sooner a prefix is gone: one point agrees with itself
            low, high = 0.0, 1.0
            for _ in range(HIT_BISECTIONS):
                middle = (low + high) / 2
                if lives(settle(middle)) > middle:
                    low = middle
                else:
                    high = middle
            network = settle(low)
        held = lives(network)
    return EngineTime(
        rollouts_per_second=network.rate / load.turns,
        turns_per_second=network.rate,
        in_flight=alive,
        batch=network.batch,
        decode_step=network.step,
        prefill_turn=network.alone,
        prefill_wait=network.wait,
        transfer=network.moved,
        prefix_hit=network.hit,
        in_hbm=held,
        working_set=working_set,
        pool=pool,
        prefill_use=min(1.0, network.rate * network.full / prefill.servers),
        decode_use=network.batch / pools.most,
        waiting=network.waiting,
        extrapolated=_beyond(facts, rates, decode, prefill, load),
    )


def _prefill(
    facts: ModelFacts, gpu: Gpu, rates: Rates, shape: ServeShape, new: float, prefix: float, together: float
) -> float:
    return prefill_seconds(prefill_features(facts, gpu, rates, shape, new, prefix, together), rates, facts)


def _moved(rates: Rates, cluster: Cluster, load: Work, row: int, apart: bool, restored: float) -> float:
    """Seconds of KV that a turn waits for: what prefill hands to decode, and what comes out of the store."""
    seconds = 0.0
    if apart and load.prefill > MOVES_LEAST:
        seconds += rates.network["store_start"] + load.prefill * row / cluster.node.inter_bandwidth
    if restored > 0:
        seconds += restored * load.prefix * row / rates.network["store"]
    return seconds


def _settle(pools: _Pools, load: Work, alive: float, alone: float, full: float, moved: float, hit: float) -> _Network:
    """The batch at which decode, prefill, transfers and tools together hold all rollouts alive."""
    decode, prefill, each_step = pools.decode, pools.prefill, load.output / pools.cost.accepted

    def at(batch: float) -> tuple[float, float, float, float]:
        """(turns a second, step, wait, rollouts that this takes) when each decode server runs `batch`."""
        step = pools.step(max(batch, 1.0), load.context)
        each = each_step * step / batch
        if pools.apart:
            rate = min(decode.servers / each, pools.prefill_use * prefill.servers / full)
            wait = queue_wait(rate * full / prefill.servers, prefill.servers, full, load.turn_sigma)
        else:
            rate = decode.servers / (each + full)  # a prefill stops the decodes of its server for its time
            wait = alone / 2
        return rate, step, wait, decode.servers * batch + rate * (load.tool + alone + wait + moved)

    low, high = math.log(1e-3), math.log(pools.most)
    rate, step, wait, taken = at(pools.most)
    batch, above, waiting = pools.most, math.log(taken / alive), max(0.0, alive - taken)
    if above > 0:
        below, side = math.log(at(1e-3)[3] / alive), 0
        for _ in range(ITERATIONS):
            middle = (low * above - high * below) / (above - below)
            batch = math.exp(middle)
            rate, step, wait, taken = at(batch)
            off = math.log(taken / alive)
            if abs(off) <= CLOSE:
                break
            # Illinois: the end that stays twice weighs half
            if off > 0:
                high, above, below, side = middle, off, below / 2 if side > 0 else below, 1
            else:
                low, below, above, side = middle, off, above / 2 if side < 0 else above, -1
    return _Network(rate, batch, step, wait, waiting, alone, full, moved, hit)


def _beyond(
    facts: ModelFacts, rates: Rates, decode: EngineLayout, prefill: EngineLayout, load: Work
) -> tuple[str, ...]:
    """Names of the inputs that lie outside the data."""
    domain, found = rates.document.domain, []
    if decode.ep > domain.low_latency_ep:
        found.append(f"expert all-to-all of decode at ep {decode.ep}, measured to {domain.low_latency_ep}")
    if prefill.ep > domain.normal_ep:
        found.append(f"expert all-to-all of prefill at ep {prefill.ep}, measured to {domain.normal_ep}")
    if load.prefix > domain.prefix:
        found.append(f"prefix of {load.prefix:.0f} tokens in prefill, measured to {domain.prefix}")
    if facts.attention_kind not in domain.engine_attention:
        found.append(
            f"attention of kind {facts.attention_kind} in decode, measured: {', '.join(domain.engine_attention)}"
        )
    if rates.document.gpu not in domain.engine_gpus:
        found.append(f"decode and prefill on {rates.document.gpu}, measured on {', '.join(domain.engine_gpus)}")
    if decode.tp > domain.engine_tp:
        found.append(f"tensor parallel {decode.tp} in decode, measured to {domain.engine_tp}")
    return tuple(found)
