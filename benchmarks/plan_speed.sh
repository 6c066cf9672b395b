#!/usr/bin/env bash
# User CPU seconds and peak memory of whole `prlc plan` processes; with AICONFIGURATOR=path/to/aiconfigurator also of
# that tool's search for the inference half alone. Usage: benchmarks/plan_speed.sh [RUNS]. Needs GNU time.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3}
prlc=${PRLC:-.venv/bin/prlc}
example=examples/glm-5.1-swe-28x8-h200.yaml

measure() { # NAME COMMAND...
  local name=$1
  shift
  for _ in $(seq "$runs"); do
    /usr/bin/time -f "$name: %U s user, %e s wall, %M KB" -- "$@" >/dev/null 2> >(tail -n 1 >&2)
  done
}

measure "28 nodes, step_time 5min" "$prlc" plan "$example"
measure "28 nodes, minimize step_time" "$prlc" plan "$example" --set "objective={minimize: step_time}"
measure "512 nodes, minimize step_time" "$prlc" plan "$example" --nodes 512 --set "objective={minimize: step_time}"
measure "512 nodes, batch 4096" "$prlc" plan "$example" --nodes 512 --set "objective={minimize: step_time}" \
  --set algorithm.batch_size=4096
if [[ -n ${AICONFIGURATOR:-} ]]; then
  runs=1
  measure "aiconfigurator, GLM-5.2-FP8, 128 GPUs, vllm" "$AICONFIGURATOR" cli default \
    --model-path zai-org/GLM-5.2-FP8 --total-gpus 128 --system h200_sxm --backend vllm \
    --isl 65536 --osl 1024 --prefix 63488 --ttft 20000 --tpot 100 --no-color
fi
