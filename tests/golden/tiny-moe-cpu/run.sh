#!/bin/bash
# tiny-moe: every role on this machine. Ctrl-C stops it; start it again to go on.
set -euo pipefail

PRLC_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PRLC_BUNDLE
export PRLC_RUN_DIR=${PRLC_RUN_DIR:-runs/tiny-moe}
venv=${PRLC_VENV:-.venv}
[ -x "$venv/bin/python" ] || { echo "no Python environment at $venv; set PRLC_VENV" >&2; exit 2; }
venv=$(cd "$venv" && pwd)
export PATH="$venv/bin:$PATH"
mkdir -p "$PRLC_RUN_DIR"
PRLC_RUN_DIR=$(cd "$PRLC_RUN_DIR" && pwd)

# One attempt at a time, each with a number, a folder and a token of its own; nothing of an earlier one is deleted.
PRLC_ATTEMPT=$(python -m prlc.runtime.agent.attempt --launcher "$$")
[ -n "$PRLC_ATTEMPT" ] || exit 0   # the run has ended well already
export PRLC_ATTEMPT
export PRLC_NODES_FILE=$PRLC_RUN_DIR/attempts/$PRLC_ATTEMPT/nodes
stop_file=$PRLC_RUN_DIR/attempts/$PRLC_ATTEMPT/STOP
printf '%s: attempt %s in %s\n' tiny-moe "$PRLC_ATTEMPT" "$PRLC_RUN_DIR"
printf '%s\n' 127.0.0.1 >"$PRLC_NODES_FILE"

# The first process that fails, or a signal, ends the others: agents see the file STOP and give their processes time to
# save. What has no agent, and a second signal, is met with TERM, at which srun kills its step.
rc=0
pids=()
agents=0
interrupted=0
stop() {
  interrupted=1
  if [ "$rc" -eq 0 ]; then rc=$1; fi
  if [ "$agents" -eq 1 ] && [ ! -e "$stop_file" ] && : 2>/dev/null >"$stop_file"; then return 0; fi
  kill -s TERM "${pids[@]}" 2>/dev/null || true
}
trap 'stop 130' INT
trap 'stop 143' TERM
await() {
  local left=${#pids[@]} status
  while [ "$left" -gt 0 ]; do
    interrupted=0
    status=0
    wait -n || status=$?
    if [ "$interrupted" -eq 1 ]; then continue; fi
    left=$((left - 1))
    if [ "$status" -ne 0 ] && [ "$rc" -eq 0 ]; then stop "$status"; fi
  done
  pids=()
  return "$rc"
}
# Says how it ended. Status 75: stopped with its state whole, another attempt goes on from there.
finish() {
  local status=0
  python -m prlc.runtime.agent.finish --status "$rc" || status=$?
  rc=$status
  exit "$rc"
}
start() {
  "${@:3}" bash "$PRLC_BUNDLE/roles/$1.sh" "$2" </dev/null &
  pids+=("$!")
}

# preflight: each node looks at itself before any weights are read
start preflight 0 timeout --kill-after=15 110
await || finish
agents=1
# engine: 1 x (tp 1, dp 1, ep 1), bf16
start engine 0
# orchestrator
start orchestrator 0
# trainer: fsdp 1 = dp 1 x cp 1, ep 1, fp32
start trainer 0

python -m prlc.runtime.agent.watch "${pids[@]}" & disown   # ends with this script
await || true
finish
