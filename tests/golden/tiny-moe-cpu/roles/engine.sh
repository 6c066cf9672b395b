#!/bin/bash
# One process of role engine: 1 x (tp 1, dp 1, ep 1), bf16
# Started by run.sh with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"
NODE=(0)
PORT=(20771)

export VLLM_SERVER_DEV_MODE=1   # routes of weight updates
export VLLM_HOST_IP="${nodes[${NODE[index]}]}"   # the cluster's own address, not a guess
export HF_HUB_OFFLINE=1   # a job fetches nothing
export VLLM_NO_USAGE_STATS=1
export DO_NOT_TRACK=1
export PYTHONHASHSEED=0   # KV block hashes agree between servers
export VLLM_USE_V2_MODEL_RUNNER=1   # returns routed experts
export TRITON_INTERPRET=1   # Triton has no CPU backend
export PRLC_VLLM_MENDS=1   # what vLLM's CPU build lacks
export VLLM_CPU_KVCACHE_SPACE=1   # GiB
export VLLM_CPU_OMP_THREADS_BIND=nobind   # servers share the cores
export OMP_NUM_THREADS=1

exec python -m prlc.runtime.agent --role engine --index "$index" -- \
  vllm serve "$PRLC_RUN_DIR/model" \
  --served-model-name policy \
  --host "${nodes[${NODE[index]}]}" \
  --port "${PORT[index]}" \
  --middleware prlc.runtime.inference.access.RunToken \
  --dtype bfloat16 \
  --tensor-parallel-size 1 \
  --max-model-len 64 \
  --max-num-seqs 128 \
  --max-num-batched-tokens 2048 \
  --enable-prefix-caching \
  --logprobs-mode processed_logprobs \
  --generation-config vllm \
  --enable-scale-out \
  --enable-prompt-tokens-details \
  --weight-transfer-config '{"backend":"prlc_fs"}' \
  --seed 0 \
  --enable-return-routed-experts \
  --enforce-eager \
  --compilation-config '{"custom_ops":["all","-rotary_embedding"]}'
