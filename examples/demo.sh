#!/usr/bin/env bash
# The main job, end to end, on 2 CPU cores: a tiny MoE learns to use a tool by asynchronous RL.
# Stop it with Ctrl-C and start it again: it resumes from the last complete checkpoint.
#   examples/demo.sh [VENV] [SPEC] [DIRECTORY]
set -euo pipefail
venv=${1:-.venv}
spec=${2:-examples/tiny-moe-cpu.yaml}
run=${3:-runs/tiny-moe}
seed=${SEED:-0}
export PATH="$PWD/$venv/bin:$PATH" PRLC_VENV="$PWD/$venv" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
mkdir -p "$run/run"

echo "== 1/5 a tiny random MoE and its tokenizer, made from a seed"
[ -e "$run/random/COMPLETE" ] || python -m prlc.runtime.ops.tiny_model --out "$run/random" --seed "$seed"

echo "== 2/5 a short supervised warm start: it teaches the form of a tool call, not yet the skill"
if [ ! -e "$run/run/model/COMPLETE" ]; then
  python -m prlc.runtime.environments.demonstrations --env lookup --n 2048 --noise 0.6 --seed "$((seed + 1))" \
    --out "$run/demonstrations.jsonl"
  python -m prlc.runtime.trainer.sft --model "$run/random" --data "$run/demonstrations.jsonl" \
    --steps 250 --lr 5e-4 --seed "$seed" --out "$run/run/model"
fi

echo "== 3/5 plan"
prlc plan "$spec"

echo "== 4/5 build"
prlc build "$spec" -o "$run/bundle"

echo "== 5/5 run (logs: $run/run/attempts/latest/logs)"
# a line for each batch that is ready and one for each that is trained, from the logs of this attempt
logs=$run/run/attempts/latest/logs
tail --pid=$$ -n 0 -q -F "$logs/orchestrator-0.log" "$logs/trainer-0.log" 2>/dev/null |
  grep --line-buffered -E '^(step|trained|evaluation)' &
PRLC_RUN_DIR="$PWD/$run/run" bash "$run/bundle/run.sh"

python -m prlc.runtime.ops.summary "$run/run" --png "$run/summary.png"
