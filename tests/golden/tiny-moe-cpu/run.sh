#!/bin/bash
# tiny-moe: every role on this machine. Ctrl-C stops it; start it again to resume.
set -euo pipefail

PRLC_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PRLC_BUNDLE
export PRLC_RUN_DIR=${PRLC_RUN_DIR:-runs/tiny-moe}
venv=${PRLC_VENV:-.venv}
[ -x "$venv/bin/python" ] || { echo "no Python environment at $venv; set PRLC_VENV" >&2; exit 2; }
venv=$(cd "$venv" && pwd)
export PATH="$venv/bin:$PATH"

# Each start is an attempt with a number of its own; nothing of an earlier one is deleted.
mkdir -p "$PRLC_RUN_DIR/attempts"
PRLC_RUN_DIR=$(cd "$PRLC_RUN_DIR" && pwd)
PRLC_ATTEMPT=1
until mkdir "$PRLC_RUN_DIR/attempts/$PRLC_ATTEMPT" 2>/dev/null; do
  [ -d "$PRLC_RUN_DIR/attempts/$PRLC_ATTEMPT" ] || { echo "cannot write in $PRLC_RUN_DIR/attempts" >&2; exit 2; }
  PRLC_ATTEMPT=$((PRLC_ATTEMPT + 1))
done
export PRLC_ATTEMPT
attempt_dir=$PRLC_RUN_DIR/attempts/$PRLC_ATTEMPT
export PRLC_NODES_FILE=$attempt_dir/nodes
ln -sfn "$PRLC_ATTEMPT" "$PRLC_RUN_DIR/attempts/latest"
if [ -e "$PRLC_RUN_DIR/FAILED" ]; then mv "$PRLC_RUN_DIR/FAILED" "$attempt_dir/FAILED.before"; fi
mkdir -p "$attempt_dir/logs" "$attempt_dir/ready" "$PRLC_RUN_DIR/done"
echo "tiny-moe: attempt $PRLC_ATTEMPT in $PRLC_RUN_DIR"
printf '%s\n' 127.0.0.1 >"$PRLC_NODES_FILE"

pids=()
start() {
  bash "$PRLC_BUNDLE/roles/$1.sh" "$2" </dev/null &
  pids+=("$!")
}
# engine: 1 x (tp 1, dp 1, ep 1), bf16
start engine 0
# orchestrator
start orchestrator 0
# trainer: fsdp 1 = dp 1 x cp 1, ep 1, fp32
start trainer 0

# The run is over when every process has ended. The first that fails, or a signal, ends the others.
rc=0
interrupted=0
stop() {
  interrupted=1
  if [ "$rc" -eq 0 ]; then rc=$1; fi
  kill -s TERM "${pids[@]}" 2>/dev/null || true
}
trap 'stop 130' INT
trap 'stop 143' TERM
left=${#pids[@]}
while [ "$left" -gt 0 ]; do
  interrupted=0
  status=0
  wait -n || status=$?
  if [ "$interrupted" -eq 1 ]; then continue; fi
  left=$((left - 1))
  if [ "$status" -ne 0 ] && [ "$rc" -eq 0 ]; then stop "$status"; fi
done
if [ "$rc" -ne 0 ]; then
  printf '%s: ended with status %s; logs: %s\n' tiny-moe "$rc" "$attempt_dir/logs" >&2
fi
exit "$rc"
