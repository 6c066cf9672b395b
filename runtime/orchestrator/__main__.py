"""python -m prlc.runtime.orchestrator --config config/orchestrator.yaml: the orchestrator of a run."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import httpx
from prlc.runtime.environments.base import DrivingEnvironment
from prlc.runtime.environments.base import load as load_environment
from prlc.runtime.ops import token
from prlc.runtime.ops.events import Events, Metrics
from prlc.runtime.ops.files import write_atomic
from prlc.runtime.ops.rendezvous import Rendezvous
from prlc.runtime.ops.run_paths import RunPaths
from prlc.runtime.orchestrator.engines import Slot
from prlc.runtime.orchestrator.http_engine import HttpEngine
from prlc.runtime.orchestrator.loop import Loop
from prlc.runtime.orchestrator.prometheus import MetricsServer
from prlc.runtime.orchestrator.shipping import ship
from prlc.schema.codec import load
from prlc.schema.orchestrator import OrchestratorConfig
from tokenizers import Tokenizer


class FileTokenizer:
    """The tokenizer.json of a model folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, none added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """Text of tokens, special ones included."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))


class RunNotes:
    """Events and metrics files of this process."""

    def __init__(self, paths: RunPaths) -> None:
        self._events = Events(paths.root, "orchestrator", 0)
        self._metrics = Metrics(paths.root, "orchestrator", 0)

    def emit(self, name: str, **fields: Any) -> None:
        """One event."""
        self._events.emit(name, **fields)

    def log(self, step: int, **values: Any) -> None:
        """Metrics of a step."""
        self._metrics.log(step, **values)


def engine_slots(config: OrchestratorConfig, where: Rendezvous, client: httpx.AsyncClient) -> list[Slot]:
    """A slot for each engine of the topology. Raises RendezvousError, ValueError where there is none."""
    named = [(f"{role}-{index}", url) for role in config.engine_roles for index, url in enumerate(where.urls(role))]
    if not named:
        raise ValueError("the topology has no engine")
    if config.route == "direct":
        return [Slot(HttpEngine(name, url, config, client)) for name, url in named]
    routers = [role.name for role in where.topology.roles if role.kind == "router"]
    if not routers:
        raise ValueError("route is router, but the topology has none")
    router = next(iter(where.urls(routers[0])))
    everyone = tuple(url for _, url in named)
    return [Slot(HttpEngine(name, url, config, client, router, everyone)) for name, url in named]


async def run(config: OrchestratorConfig) -> None:
    """One life of the orchestrator, then done/orchestrator. Raises what Loop.run raises."""
    paths = RunPaths.from_environment()
    base = paths.root / config.model
    paths.batches.mkdir(parents=True, exist_ok=True)
    # Servers close a connection idle for 5 s; one that is reused just then loses its request.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
    secret, where = token.current(), Rendezvous.from_environment()
    environment = load_environment(config.environment.id, config.environment.args, base)
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(environment, DrivingEnvironment):
            await stack.enter_async_context(environment)
        client = await stack.enter_async_context(
            httpx.AsyncClient(limits=limits, trust_env=False, headers=token.headers(secret))
        )
        loop = Loop(
            config,
            paths,
            base,
            environment,
            FileTokenizer(base),
            engine_slots(config, where, client),
            lambda step, samples: ship(paths, step, samples, config),
            RunNotes(paths),
            int(os.environ.get("PRLC_ATTEMPT", "1")),
        )
        me = where.endpoint("orchestrator", 0)
        server = MetricsServer(
            where.address(me.node), me.port, secret, loop.numbers, paths.scrape("orchestrator", 0), where.topology.run
        )
        stack.push_async_callback(server.stop)
        await server.start()
        await loop.run()
    paths.done("orchestrator").parent.mkdir(parents=True, exist_ok=True)
    write_atomic(paths.done("orchestrator"), b"")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="The orchestrator of a run.")
    parser.add_argument("--config", type=Path, required=True)
    asyncio.run(run(load(OrchestratorConfig, parser.parse_args().config)))


if __name__ == "__main__":
    main()
