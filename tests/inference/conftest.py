"""One vLLM server (float32, CPU, mended) for all tests of this folder, and transformers to judge it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prlc.runtime.orchestrator.http_engine import HttpEngine
from prlc.schema.orchestrator import Environment, OrchestratorConfig, Sampling

LAYERS, EXPERTS, TOP_K = 4, 16, 4
START_DEADLINE = 300.0
SETTINGS = {
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "TRITON_INTERPRET": "1",
    "PRLC_VLLM_MENDS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}
FLAGS = [
    "--dtype=float32",
    "--max-model-len=512",
    "--enforce-eager",
    "--enable-scale-out",
    "--enable-return-routed-experts",
    "--enable-prompt-tokens-details",
    "--logprobs-mode=processed_logprobs",
    '--weight-transfer-config={"backend":"prlc_fs"}',
]


class Endless(HttpEngine):
    """The orchestrator's client, but its requests run to their full length; keeps the last answer."""

    last: Any = None

    async def _post(self, url: str, body: dict[str, Any], *rest: Any) -> Any:
        if "sampling_params" in body:
            body["sampling_params"]["ignore_eos"] = True
        self.last = await super()._post(url, body, *rest)
        return self.last


@dataclass(frozen=True)
class Served:
    """`base` is the folder that the server started with; `other` a published policy of other weights."""

    url: str
    base: Path
    other: Path
    log: Path

    def run(self, body: Callable[[Endless], Coroutine[Any, Any, Any]]) -> Any:
        """Run `body` with the orchestrator's client, in a loop of its own."""

        async def one() -> Any:
            async with httpx.AsyncClient(trust_env=False) as client:
                engine = Endless("engine-0", self.url, orchestrator_config(), client)
                return await asyncio.wait_for(body(engine), 120)

        return asyncio.run(one())

    def generated(self) -> int:
        """Tokens generated since the start, by the server's own metrics."""
        lines = httpx.get(f"{self.url}/metrics", timeout=10, trust_env=False).text.splitlines()
        return sum(
            int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("vllm:generation_tokens_total")
        )

    async def step_until(self, engine: Endless, count: int) -> None:
        """Run a paused engine in short bursts until `count` tokens have been generated in all; it stays paused.

        Both calls of a burst are under way together, so a busy machine does not make it longer. Raises
        TimeoutError after a minute.
        """
        until = time.monotonic() + 60
        while self.generated() < count:
            if time.monotonic() > until:
                raise TimeoutError(f"fewer than {count} tokens after a minute")
            resumed = asyncio.create_task(engine.resume())
            await asyncio.sleep(0.01)
            await asyncio.gather(resumed, engine.pause())
            await engine.pause()


def orchestrator_config() -> OrchestratorConfig:
    return OrchestratorConfig(
        model="unused",
        seq_len=512,
        max_steps=1,
        batch_size=2,
        group_size=2,
        advantage="grpo",
        max_off_policy_steps=1,
        max_inflight_groups=1,
        environment=Environment(id="lookup"),
        sampling=Sampling(max_tokens=64, max_turns=1),
        routed_experts=True,
        moe_layers=LAYERS,
        top_k=TOP_K,
        num_experts=EXPERTS,
        route="direct",
        engine_roles=("engine",),
        request_deadline=100.0,
        admin_deadline=60.0,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from prlc.runtime.ops.tiny_model import write_model

    folder = tmp_path_factory.mktemp("models")
    base, other = folder / "base", folder / "other"
    write_model(base, seed=0)
    write_model(other, seed=1)
    (base / "COMPLETE").unlink(missing_ok=True)
    (other / "COMPLETE").touch()
    return base, other


@pytest.fixture(scope="session")
def served(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    vllm = shutil.which("vllm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert vllm is not None
    command = [vllm, "serve", str(models[0]), "--host=127.0.0.1", f"--port={port}", *FLAGS]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **SETTINGS},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + START_DEADLINE
        while True:
            try:
                if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"the server did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")
            time.sleep(0.5)
        yield Served(url, *models, log)
    finally:
        for wanted, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
            try:
                os.killpg(process.pid, wanted)
                process.wait(seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


class Reference:
    """transformers' forward in float32."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def __call__(self, tokens: list[int], prompt: int) -> tuple[Any, Any]:
        """(logprobs of the tokens after the prompt, sorted experts [tokens, layers, top-k])."""
        import torch

        with torch.no_grad():
            out = self.model(torch.tensor([tokens]), output_router_logits=True)
        table = out.logits[0].log_softmax(-1)
        logprobs = [float(table[at - 1, tokens[at]]) for at in range(prompt, len(tokens))]
        rows = torch.stack([layer.topk(TOP_K, -1).indices for layer in out.router_logits], 1)
        return np.array(logprobs), np.sort(rows.numpy(), -1)


@pytest.fixture(scope="session")
def references(models: tuple[Path, Path]) -> tuple[Reference, Reference]:
    return Reference(models[0]), Reference(models[1])
