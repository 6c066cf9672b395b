"""Environments of the verifiers package (0.4): `environment: {id: "verifiers:<taskset>", args: {...}}`.

verifiers plays the task (prompt, tool servers, sandbox, stops, rewards); each turn of the model is asked of the
rollout's Policy, which keeps the exact tokens, logprobs, experts and policy versions.

args, all optional:
  taskset   settings of the taskset, as in verifiers' `env.taskset`
  eval      settings that make the evaluation's taskset of it, e.g. {split: test}; without it, tasks whose key or
            content hashes to 0 modulo 5 are the evaluation's and the others are trained on
  tasks     how many tasks to read; needed where the taskset is endless
  agent     settings of the agent, as in verifiers' `env.agent`: harness, runtime, timeout, max_output_tokens ...
  renderer  the model's renderer, e.g. {name: qwen3}; without it the chat template of the model's folder
  deadline  seconds that one rollout may take (3600)
  seed      of the order of tasks (0)
"""

from __future__ import annotations

import asyncio
import random
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import verifiers
import verifiers.v1 as vf
from prlc.runtime.environments.base import Policy, RolloutFailed, Split, Task, UnknownEnvironment
from prlc.runtime.environments.verifiers_chat import Chat
from prlc.runtime.environments.verifiers_client import PolicyClient, PolicyInterception
from prlc.runtime.environments.verifiers_program import ChatProgram
from pydantic import ValidationError
from verifiers.v1.mcp import SharedToolServer, serve_shared
from verifiers.v1.runtimes import runtime_is_local
from verifiers.v1.task import task_key
from verifiers.v1.utils.loaders import environment_class, harness_class

ARGUMENTS = frozenset({"taskset", "eval", "tasks", "agent", "renderer", "deadline", "seed"})
OURS = frozenset({"model", "client", "sampling", "max_turns", "retries"})  # of an agent's settings


class VerifiersEnvironment:
    """A DrivingEnvironment around a verifiers taskset and one agent."""

    def __init__(self, taskset: str, arguments: dict[str, Any], model: Path) -> None:
        self.name = f"verifiers:{taskset}"
        if not verifiers.__version__.startswith("0.4."):
            raise self._wrong(f"verifiers {verifiers.__version__} is installed, 0.4 is needed")
        unknown = sorted(set(arguments) - ARGUMENTS)
        if unknown:
            raise self._wrong(f"unknown args {', '.join(unknown)}; known: {', '.join(sorted(ARGUMENTS))}")
        self.seed = int(arguments.get("seed", 0))
        self.deadline = float(arguments.get("deadline", 3600.0))
        try:
            self.taskset = _taskset(taskset, arguments.get("taskset", {}))
            held_out = arguments.get("eval")
            other = _taskset(taskset, {**arguments.get("taskset", {}), **held_out}) if held_out else None
            self.agent_config, self.own_program = self._agent(taskset, dict(arguments.get("agent", {})))
            self.chat = Chat(model, arguments.get("renderer", {}))
        except ModuleNotFoundError as error:
            raise self._wrong(f"{error}; install the package of that environment") from None
        except (ValidationError, ValueError, TypeError, AttributeError) as error:
            raise self._wrong(str(error)) from error
        self.splits = self._split(arguments.get("tasks"), other)
        self._order: dict[tuple[Split, int], list[int]] = {}
        self.client = PolicyClient(self.chat, self.name)
        self._stack = AsyncExitStack()
        self._shared: dict[str, SharedToolServer] = {}
        self._interception: PolicyInterception | None = None

    def _wrong(self, what: str) -> UnknownEnvironment:
        return UnknownEnvironment(f"environment {self.name!r}: {what}")

    def _agent(self, taskset: str, settings: dict[str, Any]) -> tuple[vf.AgentConfig, bool]:
        """The agent's configuration, and whether its program is ours. Raises UnknownEnvironment, ValidationError."""
        if environment_class(taskset) is not vf.SingleAgentEnv:
            raise self._wrong("it has several agents; a rollout here is one conversation of one policy")
        taken = sorted(OURS & set(settings))
        if taken:
            raise self._wrong(f"args.agent must leave {', '.join(taken)} to the run")
        named = settings.get("harness") or {}
        default = vf.default_harness_id(taskset)
        own = "id" not in named and default == "bash"  # verifiers' default for a taskset that has none
        if own:
            settings["harness"] = {**named, "id": "null"}
        elif "id" not in named:
            settings["harness"] = {**named, "id": default}
        config = vf.AgentConfig.model_validate({"runtime": {"type": "subprocess"}, **settings})
        assert config.harness is not None
        program = harness_class(config.harness.id)
        if program.EXECUTES_CODE and isinstance(config.runtime, vf.SubprocessConfig):
            raise self._wrong(
                f"harness {config.harness.id!r} would run what the model writes on this machine; "
                "set args.agent.runtime.type to docker, podman or apptainer"
            )
        endpoint = vf.TrainClientConfig(base_url="http://127.0.0.1:9")  # never dialled: PolicyInterception answers
        return config.model_copy(update={"model": self.name, "client": endpoint}), own

    def _split(
        self, count: int | None, other: vf.Taskset[Any, Any] | None
    ) -> dict[Split, list[vf.Task[Any, Any, Any]]]:
        def read(taskset: vf.Taskset[Any, Any]) -> list[vf.Task[Any, Any, Any]]:
            if count is None and not taskset.bounded:
                raise self._wrong("its tasks have no end; say how many to use: args.tasks")
            return list(taskset if count is None else taskset.take(count))

        tasks = read(self.taskset)
        if other is None:
            held = [zlib.crc32(_identity(task).encode()) % 5 == 0 for task in tasks]
            train = [task for task, out in zip(tasks, held, strict=True) if not out]
            evaluation = [task for task, out in zip(tasks, held, strict=True) if out]
        else:
            train, evaluation = tasks, read(other)
            shared = {_identity(task) for task in train} & {_identity(task) for task in evaluation}
            if shared:
                raise self._wrong(f"args.eval shares {len(shared)} tasks with the training tasks")
        if not train or not evaluation:
            raise self._wrong(
                f"{len(train)} training and {len(evaluation)} evaluation tasks; both are needed: args.tasks, args.eval"
            )
        return {"train": train, "eval": evaluation}

    def task(self, split: Split, index: int) -> Task:
        """Task `index` of a split: every task once, in an order of its own, then again in another."""
        tasks = self.splits[split]
        epoch, place = divmod(index, len(tasks))
        order = self._order.get((split, epoch))
        if order is None:
            order = list(range(len(tasks)))
            random.Random(f"{self.seed} {split} {epoch}").shuffle(order)
            self._order = {key: value for key, value in self._order.items() if key[1] >= epoch - 1}
            self._order[split, epoch] = order
        chosen = tasks[order[place]]
        return Task(index, split, chosen.data.prompt_text, {"task": chosen})

    async def __aenter__(self) -> VerifiersEnvironment:
        """Start the tool servers that all rollouts share, and the endpoint of the agents' programs on loopback."""
        local = runtime_is_local(self.agent_config.runtime)
        try:
            servers = self.taskset.toolsets(self.taskset.config)
            if servers:
                self._shared = await self._stack.enter_async_context(serve_shared(servers, harness_is_local=local))
            secrets = tuple(server.state_secret for server in self._shared.values() if server.state_secret)
            self._interception = await self._stack.enter_async_context(
                PolicyInterception(self.client, requires_tunnel=not local, state_service_secrets=secrets)
            )
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop what was started."""
        await self._stack.aclose()

    async def play(self, task: Task, policy: Policy) -> float:
        """One rollout: the sum of its weighted rewards. Raises RolloutFailed."""
        config = self.agent_config.model_copy(update={"max_turns": policy.max_turns})
        agent = vf.Agent(config, interception=self._interception)
        if self.own_program:
            agent.harness = ChatProgram(config.harness)
        traces: list[vf.Trace] = []

        def minted(trace: vf.Trace) -> None:
            traces.append(trace)
            self.client.policies[trace.id] = policy

        try:
            async with asyncio.timeout(self.deadline):
                trace = await agent.run(task.secret["task"], tools=self._shared, on_trace=minted)
        except TimeoutError:
            raise RolloutFailed(f"{self.name}: not done within {self.deadline:g} s") from None
        except Exception as error:
            raise RolloutFailed(f"{self.name}: {type(error).__name__}: {error}") from error
        finally:
            for mine in traces:
                self.client.policies.pop(mine.id, None)
            causes = [self.client.failures.pop(mine.id, None) for mine in traces]
        cause = next((cause for cause in causes if cause is not None), None)
        if cause is None and not trace.ok and trace.last_error is not None:
            cause = RuntimeError(f"{trace.last_error.type}: {trace.last_error.message}")
        if cause is not None or not trace.ok:
            raise RolloutFailed(f"{self.name}: {cause or 'the rollout failed'}")
        if not trace.num_turns:
            raise RolloutFailed(f"{self.name}: the program ended without a turn of the model ({trace.stop_condition})")
        return float(trace.reward)


def _identity(task: vf.Task[Any, Any, Any]) -> str:
    """A task's own key; else its content without its place in the taskset, which verifiers' default key includes."""
    if task.key != task.hash:
        return task.key
    return task_key(task.data.model_dump(mode="json", exclude_none=True, exclude={"idx"}))


def _taskset(name: str, settings: dict[str, Any]) -> vf.Taskset[Any, Any]:
    """Raises ModuleNotFoundError, ValidationError, TypeError."""
    config = vf.taskset_config_type(name).model_validate({**settings, "id": name})
    return vf.load_taskset(config)
