"""Closed forms of the rollout forecast against simulations of the same systems, written out step by step."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections import OrderedDict
from pathlib import Path

import pytest
from prlc import catalog
from prlc.compiler.forecast.decode import decode_cost, prefill_features, prefill_seconds, scaled
from prlc.compiler.forecast.engine import cached_share, engine_time, serve_shape
from prlc.compiler.forecast.loop import work
from prlc.compiler.forecast.rates import rates
from prlc.compiler.layout import EngineLayout
from prlc.schema.codec import load
from prlc.schema.run import RunSpec

H200, CLUSTER, RATES = catalog.gpu("h200"), catalog.cluster("h200-28x8"), rates("h200", "h200")
FACTS = catalog.facts(catalog.model("qwen3-30b-a3b"))
SPEC = load(RunSpec, Path(__file__).parents[2] / "examples" / "glm-5.1-swe-28x8-h200.yaml")


@pytest.mark.parametrize("pool", [95, 85, 75, 60, 45])
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_share_of_prefixes_that_an_lru_pool_keeps(pool: int, sigma: float) -> None:
    """100 conversations of one block each: active for 5 s, touched at both ends, then a lognormal pause of 10 s."""
    draw, alive, pause, active = random.Random(1), 100, 10.0, 5.0
    cache: OrderedDict[int, None] = OrderedDict()
    busy: set[int] = set()
    events = [(draw.uniform(0, pause), who, True) for who in range(alive)]
    heapq.heapify(events)
    hits = seen = 0
    for count in range(60_000):
        now, who, returns = heapq.heappop(events)
        if count > 10_000 and returns:
            seen, hits = seen + 1, hits + (who in cache)
        cache[who] = None
        cache.move_to_end(who)
        (busy.add if returns else busy.discard)(who)
        while len(cache) > pool and (idle := next((c for c in cache if c not in busy), None)) is not None:
            del cache[idle]
        away = draw.lognormvariate(math.log(pause) - sigma**2 / 2, sigma)
        heapq.heappush(events, (now + active, who, False) if returns else (now + away, who, True))
    assert hits / seen == pytest.approx(cached_share(pool, alive, active + pause, pause, sigma), abs=0.06)


def engine(**changed: object) -> EngineLayout:
    base = EngineLayout(
        role="engine",
        nodes=(0,),
        replicas=8,
        tp=1,
        dp=1,
        ep=1,
        all2all="none",
        max_model_len=131072,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.9,
        kv_bytes=10**11,
        kv_tokens=10**8,
    )
    return dataclasses.replace(base, **changed)  # type: ignore[arg-type]


def simulated(layout: EngineLayout, in_flight: int, seconds: float) -> float:
    """Turns a second of servers that decode token by token and stop for each prefill; the least loaded takes a turn."""
    load_of, draw = work(SPEC), random.Random(3)
    shape = serve_shape(layout, "bf16", CLUSTER)
    cost = scaled(decode_cost(FACTS, H200, RATES, shape), RATES, FACTS, shape)
    hit = RATES.loop["prefix_hit"]
    new = load_of.prefill + (1 - hit) * load_of.prefix
    turn = prefill_seconds(prefill_features(FACTS, H200, RATES, shape, new, load_of.prefix * hit), RATES, FACTS)
    output = round(load_of.output)
    tools = [(draw.uniform(0, 2 * load_of.tool), k) for k in range(in_flight)]
    heapq.heapify(tools)
    queues: list[list[int]] = [[] for _ in range(layout.servers)]  # rollouts that wait for prefill
    running: list[dict[int, int]] = [{} for _ in range(layout.servers)]  # rollout -> tokens left
    clocks = [(0.0, server) for server in range(layout.servers)]
    heapq.heapify(clocks)
    done, warm = 0, seconds / 4
    while True:
        now, server = heapq.heappop(clocks)
        if now > seconds:
            return done / (seconds - warm)
        while tools and tools[0][0] <= now:
            _, who = heapq.heappop(tools)
            least = min(range(layout.servers), key=lambda s: len(queues[s]) + len(running[s]))
            queues[least].append(who)
        if queues[server] and len(running[server]) < layout.max_num_seqs:
            running[server][queues[server].pop(0)] = output
            now += turn
        elif running[server]:
            now += cost.seconds(float(len(running[server])), load_of.context)
            for who in list(running[server]):
                running[server][who] -= 1
                if running[server][who] == 0:
                    del running[server][who]
                    done += now > warm
                    heapq.heappush(tools, (now + draw.expovariate(1 / load_of.tool), who))
        else:
            now += 0.01
        heapq.heappush(clocks, (now, server))


@pytest.mark.parametrize("in_flight", [40, 160, 480, 2000])
def test_the_closed_network_agrees_with_servers_that_decode_token_by_token(in_flight: int) -> None:
    layout = engine()
    found = engine_time(FACTS, H200, CLUSTER, RATES, (layout,), "bf16", work(SPEC), in_flight, 0.0)
    assert found.in_hbm == 1
    assert found.turns_per_second == pytest.approx(simulated(layout, in_flight, 300.0), rel=0.12)
