#!/bin/bash
# One process of role trainer: fsdp 1 = dp 1 x cp 1, ep 1, fp32
# Started by run.sh with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"

export HF_HUB_OFFLINE=1   # a job fetches nothing
export DO_NOT_TRACK=1
export OMP_NUM_THREADS=1   # ranks and engines share the cores

exec python -m prlc.runtime.agent --role trainer --index "$index" -- \
  torchrun \
  --nnodes 1 \
  --nproc-per-node 1 \
  --node-rank "$index" \
  --master-addr "${nodes[0]}" \
  --master-port 20769 \
  -m prlc.runtime.trainer \
  --config "$PRLC_BUNDLE/config/trainer.yaml"
