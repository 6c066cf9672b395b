"""What a run did, as a table and as a picture, from its metrics files alone.

    python -m prlc.runtime.ops.summary RUN_DIR [--png out.png]

A number that the run did not log is shown as "-", and its curve is left out.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from prlc.runtime.ops.events import read_lines, read_metrics
from prlc.runtime.ops.run_paths import RunPaths

Curve = tuple[list[int], list[float]]


def curve(metrics: dict[int, dict[str, Any]], name: str) -> Curve:
    """Steps and values of one metric, where it was logged."""
    points = [(step, float(metrics[step][name])) for step in sorted(metrics) if metrics[step].get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]


def mean(values: list[float], form: str = ".3g") -> str:
    """The mean as text; "-" of nothing."""
    return format(sum(values) / len(values), form) if values else "-"


def median(values: list[float]) -> str:
    """The median as text; "-" of nothing."""
    return format(statistics.median(values), ".3g") if values else "-"


def over_tokens(trainer: dict[int, dict[str, Any]], name: str) -> str:
    """Mean over all tokens that the version being trained had generated: what is left is the engine's doing."""
    records = [r for r in trainer.values() if r.get("fresh_tokens") and r.get(name) is not None]
    tokens = sum(r["fresh_tokens"] for r in records)
    return format(sum(r[name] * r["fresh_tokens"] for r in records) / tokens, ".3g") if tokens else "-"


def steps_lower(trainer: dict[int, dict[str, Any]]) -> str:
    """In how many of the steps that measured both was the mismatch KL lower with replay, as "74 of 80"."""
    pairs = [
        (record["mismatch_kl"], record["mismatch_kl_no_replay"])
        for record in trainer.values()
        if record.get("mismatch_kl") is not None and record.get("mismatch_kl_no_replay") is not None
    ]
    return f"{sum(replayed < natural for replayed, natural in pairs)} of {len(pairs)}" if pairs else "-"


def table(run_dir: Path) -> list[tuple[str, str]]:
    """Rows of name and value. First and last reward are means over a tenth of the steps, at least one.

    Mismatch KL is the median of the steps; of tokens of the same version, the mean.
    """
    paths = RunPaths(run_dir)
    orchestrator = read_metrics(paths.metrics("orchestrator", 0))
    trainer = read_metrics(paths.metrics("trainer", 0))
    rewards = curve(orchestrator, "reward")[1]
    few = max(1, len(rewards) // 10)
    last = orchestrator[max(orchestrator)] if orchestrator else {}
    for record in read_lines(paths.events("orchestrator", 0)):
        if record.get("event") == "orchestrator_done":
            last = record
    dropped = last.get("dropped", {})
    causes = ", ".join(f"{name} {count}" for name, count in dropped.items() if count)
    evaluations = [
        f"{record['reward']:.3f} (version {record['version']})"
        for record in read_lines(paths.events("orchestrator", 0))
        if record.get("event") == "evaluation" and record.get("reward") is not None
    ]
    return [
        ("steps", str(len(orchestrator))),
        (f"reward, first {few} steps", mean(rewards[:few])),
        (f"reward, last {few} steps", mean(rewards[-few:])),
        ("last evaluation", evaluations[-1] if evaluations else "-"),
        ("rollouts generated", str(last.get("generated", "-"))),
        ("rollouts trained", str(last.get("trained", "-"))),
        ("rollouts dropped", f"{sum(dropped.values())}{f' ({causes})' if causes else ''}" if last else "-"),
        ("rollouts waiting", str(last.get("waiting", "-"))),
        ("mean lag, versions", mean(curve(orchestrator, "lag_mean")[1])),
        # its mean is that of the few tokens that moved most between two versions
        ("median mismatch KL with replay", median(curve(trainer, "mismatch_kl")[1])),
        ("median mismatch KL without replay", median(curve(trainer, "mismatch_kl_no_replay")[1])),
        ("steps where it is lower with replay", steps_lower(trainer)),
        ("mean mismatch KL, same version, with replay", over_tokens(trainer, "mismatch_kl_fresh")),
        ("mean mismatch KL, same version, without", over_tokens(trainer, "mismatch_kl_no_replay_fresh")),
        ("tokens/s", mean(curve(orchestrator, "tokens_per_second")[1], ".0f")),
    ]


def draw(run_dir: Path, png: Path) -> None:
    """Four panels: reward, lag, mismatch KL with and without replay, tokens/s. Raises OSError."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = RunPaths(run_dir)
    orchestrator = read_metrics(paths.metrics("orchestrator", 0))
    trainer = read_metrics(paths.metrics("trainer", 0))
    panels = [
        ("reward", orchestrator, {"reward": "finished rollouts", "batch_reward": "trained rollouts"}, False),
        ("lag (versions)", orchestrator, {"lag_mean": "mean", "lag_max": "max"}, False),
        (
            "mismatch KL",
            trainer,
            {"mismatch_kl": "with replay", "mismatch_kl_no_replay": "without replay"},
            True,
        ),
        ("tokens/s", orchestrator, {"tokens_per_second": "trained tokens"}, False),
    ]
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6.5))
    for axis, (title, metrics, names, logarithmic) in zip(axes.flat, panels, strict=True):
        for name, label in names.items():
            steps, values = curve(metrics, name)
            if values:
                axis.plot(steps, values, label=label, marker="." if len(values) == 1 else None)
                if logarithmic and min(values) > 0:
                    axis.set_yscale("log")
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)
        else:
            axis.text(0.5, 0.5, "not logged", ha="center", va="center", transform=axis.transAxes)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(png, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="What a run did.")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--png", type=Path, help="picture to write")
    arguments = parser.parse_args()
    rows = table(arguments.run_dir)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    if arguments.png:
        draw(arguments.run_dir, arguments.png)
        print(f"wrote {arguments.png}")


if __name__ == "__main__":
    main()
