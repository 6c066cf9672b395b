#!/bin/bash
# One process of role router
# Started by run.sbatch with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"

exec python -m prlc.runtime.agent --role router --index "$index" -- \
  vllm-router \
  --host "${nodes[0]}" \
  --port 20513 \
  --prometheus-host "${nodes[0]}" \
  --prometheus-port 20514 \
  --policy sticky_least_loaded \
  --vllm-pd-disaggregation \
  --prefill "http://${nodes[0]}:20517" \
  --prefill "http://${nodes[0]}:20552" \
  --prefill "http://${nodes[0]}:20554" \
  --prefill "http://${nodes[0]}:20556" \
  --prefill "http://${nodes[0]}:20558" \
  --prefill "http://${nodes[0]}:20560" \
  --prefill "http://${nodes[0]}:20562" \
  --prefill "http://${nodes[0]}:20564" \
  --prefill "http://${nodes[1]}:20512" \
  --prefill "http://${nodes[1]}:20514" \
  --prefill "http://${nodes[1]}:20516" \
  --prefill "http://${nodes[1]}:20518" \
  --prefill "http://${nodes[1]}:20520" \
  --prefill "http://${nodes[1]}:20522" \
  --prefill "http://${nodes[1]}:20524" \
  --prefill "http://${nodes[1]}:20526" \
  --prefill "http://${nodes[2]}:20512" \
  --prefill "http://${nodes[2]}:20547" \
  --prefill "http://${nodes[2]}:20549" \
  --prefill "http://${nodes[2]}:20551" \
  --prefill "http://${nodes[2]}:20553" \
  --prefill "http://${nodes[2]}:20555" \
  --prefill "http://${nodes[2]}:20557" \
  --prefill "http://${nodes[2]}:20559" \
  --prefill "http://${nodes[3]}:20512" \
  --prefill "http://${nodes[3]}:20514" \
  --prefill "http://${nodes[3]}:20516" \
  --prefill "http://${nodes[3]}:20518" \
  --prefill "http://${nodes[3]}:20520" \
  --prefill "http://${nodes[3]}:20522" \
  --prefill "http://${nodes[3]}:20524" \
  --prefill "http://${nodes[3]}:20526" \
  --prefill "http://${nodes[4]}:20512" \
  --prefill "http://${nodes[4]}:20547" \
  --prefill "http://${nodes[4]}:20549" \
  --prefill "http://${nodes[4]}:20551" \
  --prefill "http://${nodes[4]}:20553" \
  --prefill "http://${nodes[4]}:20555" \
  --prefill "http://${nodes[4]}:20557" \
  --prefill "http://${nodes[4]}:20559" \
  --prefill "http://${nodes[5]}:20512" \
  --prefill "http://${nodes[5]}:20514" \
  --prefill "http://${nodes[5]}:20516" \
  --prefill "http://${nodes[5]}:20518" \
  --prefill "http://${nodes[5]}:20520" \
  --prefill "http://${nodes[5]}:20522" \
  --prefill "http://${nodes[5]}:20524" \
  --prefill "http://${nodes[5]}:20526" \
  --decode "http://${nodes[6]}:20512" \
  --decode "http://${nodes[6]}:20547" \
  --decode "http://${nodes[6]}:20549" \
  --decode "http://${nodes[6]}:20551" \
  --decode "http://${nodes[6]}:20553" \
  --decode "http://${nodes[6]}:20555" \
  --decode "http://${nodes[6]}:20557" \
  --decode "http://${nodes[6]}:20559" \
  --decode "http://${nodes[7]}:20512" \
  --decode "http://${nodes[7]}:20514" \
  --decode "http://${nodes[7]}:20516" \
  --decode "http://${nodes[7]}:20518" \
  --decode "http://${nodes[7]}:20520" \
  --decode "http://${nodes[7]}:20522" \
  --decode "http://${nodes[7]}:20524" \
  --decode "http://${nodes[7]}:20526" \
  --decode "http://${nodes[8]}:20512" \
  --decode "http://${nodes[8]}:20514" \
  --decode "http://${nodes[8]}:20516" \
  --decode "http://${nodes[8]}:20518" \
  --decode "http://${nodes[8]}:20520" \
  --decode "http://${nodes[8]}:20522" \
  --decode "http://${nodes[8]}:20524" \
  --decode "http://${nodes[8]}:20526" \
  --decode "http://${nodes[9]}:20512" \
  --decode "http://${nodes[9]}:20514" \
  --decode "http://${nodes[9]}:20516" \
  --decode "http://${nodes[9]}:20518" \
  --decode "http://${nodes[9]}:20520" \
  --decode "http://${nodes[9]}:20522" \
  --decode "http://${nodes[9]}:20524" \
  --decode "http://${nodes[9]}:20526"
