"""A verifiers environment as a user's package would be: ask a tool for a price, answer it."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf

PRICES = {f"item{index}": str(10 + index) for index in range(20)}


class Question(vf.TaskData):
    item: str
    price: str


class ShopTask(vf.Task[Question, vf.State, vf.TaskConfig]):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.data.item == "no-box":
            raise RuntimeError("the sandbox did not start")

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        if self.data.item == "no-judge":
            raise RuntimeError("the judge is away")
        return float(trace.last_reply == self.data.price)

    @vf.reward(weight=0.5)
    async def asked(self, trace: vf.Trace) -> float:
        return float(any(message.role == "tool" for message in trace.messages))


class Shop(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    TOOL_PREFIX = "shop"

    @vf.tool
    async def price(self, item: str) -> str:
        """The price of an item."""
        if item not in PRICES:
            raise ValueError(f"no such item: {item}")
        return PRICES[item]


class ShopConfig(vf.TasksetConfig):
    items: tuple[str, ...] = tuple(PRICES)
    tools: bool = True
    tools_url: str | None = None  # of a server that runs already


class ShopTasks(vf.Taskset[ShopTask, ShopConfig]):
    def load(self) -> Iterable[ShopTask]:
        for item in self.config.items:
            question = Question(
                prompt=f"What does {item} cost?",
                system_prompt="You sell things.",
                item=item,
                price=PRICES.get(item, "0"),
            )
            yield ShopTask(question, self.config.task)

    def toolsets(self, config: ShopConfig) -> list[vf.Toolset]:
        return [Shop(vf.SharedToolsetConfig(url=config.tools_url))] if config.tools else []


__all__ = ["ShopTasks"]

if __name__ == "__main__":
    Shop.run()
