#!/bin/bash
# One process of role store
# Started by run.sbatch with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"

exec python -m prlc.runtime.agent --role store --index "$index" -- \
  mooncake_master \
  "-rpc_address=${nodes[0]}" \
  -rpc_port=20515 \
  "-metrics_host=${nodes[0]}" \
  -metrics_port=20516
