"""A sweep as a table for people and as JSON for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from prlc.compiler.decisions import layout_text
from prlc.compiler.render import duration, print_table
from prlc.compiler.whatif import Answer, frontier
from prlc.schema.secrets import redacted
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console


def _shown(found: Answer) -> dict[str, str]:
    """The swept values, with stars for a secret."""
    return {path: redacted(f"{path}: {value}").removeprefix(f"{path}: ") for path, value in found.values.items()}


def sweep_text(answers: list[Answer], out: Console) -> None:
    """One row a point; * marks those that no other beats in both step and GPUs."""
    best = frontier(answers)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 1), header_style="bold")
    table.add_column("", no_wrap=True)
    for path in answers[0].values if answers else ():
        table.add_column(path.rpartition(".")[2], no_wrap=True)
    for name in ("step", "GPUs", "tokens / GPU-h", "trainer", "engines"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout")
    for found, ahead in zip(answers, best, strict=True):
        values = [Text(value) for value in _shown(found).values()]
        if found.choice is None:
            blanks = [Text("-", justify="right")] * 5
            table.add_row(Text(" "), *values, *blanks, Text(f"refused: {redacted(found.why)}"))
            continue
        trainer, _, engines = found.choice.split
        table.add_row(
            Text("*" if ahead else " ", style="green"),
            *values,
            Text(duration(found.choice.step)),
            Text(f"{found.choice.gpus:,}"),
            Text(f"{found.tokens_per_gpu_hour:,.0f}"),
            Text(str(trainer)),
            Text(str(engines)),
            Text(layout_text(found.choice)),
        )
    print_table(table, out)
    out.print(Text(" * no other point has a step as short on as few GPUs; trainer and engines in nodes", style="dim"))


def sweep_json(answers: list[Answer]) -> str:
    """A list of points; a refused one has `refused` and no layout."""
    points = []
    for found, ahead in zip(answers, frontier(answers), strict=True):
        point: dict[str, object] = {"values": _shown(found)}
        if found.choice is None:
            point["refused"] = redacted(found.why)
        else:
            trainer, ranks, engines = found.choice.split
            point |= {
                "step_seconds": found.choice.step,
                "trainer_seconds": found.choice.trainer,
                "rollout_seconds": found.choice.rollouts,
                "gpus": found.choice.gpus,
                "tokens_per_gpu_hour": found.tokens_per_gpu_hour,
                "trainer_nodes": trainer,
                "trainer_ranks_per_node": ranks,
                "engine_nodes": engines,
                "layout": layout_text(found.choice),
                "frontier": ahead,
            }
        points.append(point)
    return json.dumps(points, indent=2) + "\n"
