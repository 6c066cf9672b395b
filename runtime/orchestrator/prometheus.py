"""The orchestrator's numbers for Prometheus, on the private address, for those who carry the run's token.

GET /metrics with `Authorization: Bearer <token>`. Where it listens stands in a file of the form that Prometheus'
file_sd_configs read; the token's file fits its `authorization: {credentials_file: ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aiohttp import web
from prlc.runtime.ops import token
from prlc.runtime.ops.files import write_atomic
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Numbers = Callable[[], dict[str, Any]]


class _Collector:
    """Reads the numbers at each scrape; nothing is counted a second time here."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def collect(self) -> Iterator[Metric]:
        for name, value in self.numbers().items():
            yield _family(name, value)


def _family(name: str, value: Any) -> Metric:
    """A gauge of a number; of a dict a gauge for each key; what is called *_total counts."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    help_text = f"As in the orchestrator's metrics: {name.replace('_', ' ')}."
    if not isinstance(value, dict):
        return kind(f"prlc_{name}", help_text, value=value)
    family = kind(f"prlc_{name}", help_text, labels=["kind"])
    for key, number in value.items():
        family.add_metric([key], number)
    return family


class MetricsServer:
    """One endpoint, from `start` to `stop`. `secret` is the run's token, `found_at` the file that says where it is."""

    def __init__(self, address: str, port: int, secret: str, numbers: Numbers, found_at: Path, run: str) -> None:
        self.address, self.port, self.secret, self.found_at, self.run = address, port, secret, found_at, run
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Collector(numbers))
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.address, self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.found_at.parent.mkdir(parents=True, exist_ok=True)
        labels = {"run": self.run, "role": "orchestrator"}
        write_atomic(self.found_at, json.dumps([{"targets": [f"{self.address}:{self.port}"], "labels": labels}]))

    async def stop(self) -> None:
        """Close the endpoint; its file goes with it."""
        self.found_at.unlink(missing_ok=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        if not token.carried(request.headers.get("Authorization", ""), self.secret):
            return web.Response(status=401, text="the run's token is wanted\n")
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
