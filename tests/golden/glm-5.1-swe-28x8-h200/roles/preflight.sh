#!/bin/bash
# preflight: each node looks at itself before any weights are read
# Started by run.sbatch with the node's index, ends before the roles start.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight

exec python -m prlc.runtime.preflight "$index"
