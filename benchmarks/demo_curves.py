"""Collect the curves of demo runs: demo_curves.py OUT.csv SEED... (folders runs/demo-seed-SEED/run)."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from prlc.runtime.ops.events import read_metrics
from prlc.runtime.ops.run_paths import RunPaths

COLUMNS = ("reward", "lag_mean", "mismatch_kl", "mismatch_kl_no_replay", "tokens_per_s", "step_seconds")


def main(out: Path, seeds: list[str]) -> None:
    """One row a seed and step."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("seed", "step", *COLUMNS))
        for seed in seeds:
            steps = read_metrics(RunPaths(Path(f"runs/demo-seed-{seed}/run")).metrics("trainer", 0))
            for step, values in sorted(steps.items()):
                writer.writerow((seed, step, *(values.get(name, "") for name in COLUMNS)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
