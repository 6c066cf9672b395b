#!/bin/bash
# One process of role trainer: fsdp 96 = dp 24 x cp 4, ep 8, optimizer on cpu, full recompute, fp8
# Started by run.sbatch with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"

export HF_HUB_OFFLINE=1   # a job fetches nothing
export DO_NOT_TRACK=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   # less fragmentation

exec python -m prlc.runtime.agent --role trainer --index "$index" -- \
  torchrun \
  --nnodes 12 \
  --nproc-per-node 8 \
  --node-rank "$index" \
  --master-addr "${nodes[10]}" \
  --master-port 20512 \
  -m prlc.runtime.trainer \
  --config "$PRLC_BUNDLE/config/trainer.yaml"
