#!/bin/bash
# One process of role orchestrator
# Started by run.sh with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight

export HF_HUB_OFFLINE=1   # a job fetches nothing
export DO_NOT_TRACK=1
export OMP_NUM_THREADS=1

exec python -m prlc.runtime.agent --role orchestrator --index "$index" -- \
  python -m prlc.runtime.orchestrator \
  --config "$PRLC_BUNDLE/config/orchestrator.yaml"
