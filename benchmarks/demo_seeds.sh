#!/usr/bin/env bash
# The demo's learning curve with several seeds: benchmarks/demo_seeds.sh [SEED...]   (about 6 minutes a seed, 2 cores)
# Writes benchmarks/results/demo_seeds.csv: seed, step, mean reward, lag, mismatch KL with and without replay.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 0 1 2
for seed in "$@"; do
  folder=runs/demo-seed-$seed
  mkdir -p "$folder"
  { cat examples/tiny-moe-cpu.yaml; echo "seed: $seed"; } >"$folder/run.yaml"
  SEED=$seed examples/demo.sh .venv "$folder/run.yaml" "$folder"
done
.venv/bin/python benchmarks/demo_curves.py benchmarks/results/demo_seeds.csv "$@"
