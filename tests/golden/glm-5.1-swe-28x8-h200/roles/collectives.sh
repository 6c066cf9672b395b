#!/bin/bash
# collectives: every rank reaches every other, inside a node and across
# Started by run.sbatch with the node's index, ends before the roles start.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"

export OMP_NUM_THREADS=1

exec torchrun \
  --nnodes 22 \
  --nproc-per-node 8 \
  --node-rank "$index" \
  --master-addr "${nodes[0]}" \
  --master-port 20512 \
  -m prlc.runtime.preflight.collectives
