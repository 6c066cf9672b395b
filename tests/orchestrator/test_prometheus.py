"""The endpoint for Prometheus: the run's numbers for its token alone, found by a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")

import httpx
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.orchestrator.engines import Slot
from prlc.runtime.orchestrator.prometheus import MetricsServer
from prlc.runtime.orchestrator.rollout import Sample
from prlc.runtime.orchestrator.statistics import statistics
from prometheus_client.parser import text_string_to_metric_families

from tests.orchestrator.test_orchestrator import Notes, Scripted, loop_of

pytestmark = pytest.mark.timeout(60)


def test_the_token_opens_it_and_the_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    paths, shipped = RunPaths(tmp_path), []
    found_at = paths.scrape("orchestrator", 0)
    loop = loop_of(paths, [Slot(Scripted("a")), Slot(Scripted("b"), healthy=False)], shipped, Notes(), max_steps=3)

    async def scene() -> tuple[str, list[int]]:
        server = MetricsServer("127.0.0.1", 0, "secret", loop.numbers, found_at, "tiny")
        await server.start()
        (group,) = json.loads(found_at.read_text())
        assert group["labels"] == {"run": "tiny", "role": "orchestrator"}
        url = f"http://{group['targets'][0]}/metrics"
        async with httpx.AsyncClient(trust_env=False) as client:
            await loop.run()
            refused = [
                (await client.get(url, headers=headers)).status_code
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"})
            ]
            answer = await client.get(url, headers={"Authorization": "Bearer secret"})
            assert answer.status_code == 200
            assert (await client.get(url.replace("metrics", "other"))).status_code == 404
        await server.stop()
        return answer.text, refused

    text, refused = asyncio.run(scene())
    assert refused == [401, 401, 401]
    assert not found_at.exists()
    values: dict[Any, float] = {
        (sample.name, sample.labels.get("kind")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    ledger = loop.ledger
    assert values["prlc_step", None] == values["prlc_policy_version", None] == 3
    assert values["prlc_rollouts_trained_total", None] == ledger.trained == 24
    dropped = {kind: value for (name, kind), value in values.items() if name == "prlc_rollouts_dropped_total"}
    assert dropped == ledger.dropped
    waiting = sum(value for (name, _), value in values.items() if name == "prlc_rollouts_waiting")
    assert values["prlc_rollouts_generated_total", None] == 24 + sum(dropped.values()) + waiting
    assert values["prlc_evaluation_version", None] == 3
    assert values["prlc_turns", None] == 2
    assert {kind for name, kind in values if name == "prlc_engines"} == {"healthy", "lost"}


def test_statistics_by_hand() -> None:
    one = Sample(0, tokens=[1] * 6, loss_mask=[0, 0, 1, 1, 0, 1], versions=[-1, -1, 3, 3, -1, 4], turns=2)
    two = Sample(1, tokens=[1] * 4, loss_mask=[0, 0, 0, 1], versions=[-1, -1, -1, 5], turns=1, truncated=True)
    one.reward, one.advantage, two.reward, two.advantage = 1.0, 1.0, 0.5, -1.0
    assert statistics([one, two], 6) == {
        "batch_reward": 0.75,
        "advantage_size": 1.0,
        "lag_mean": 1.0,
        "lag_max": 2,
        "rollouts": 2,
        "turns": 1.5,
        "length": 5.0,
        "length_max": 6,
        "generated_length": 2.0,
        "generated_length_max": 3,
        "truncated": 0.5,
    }
