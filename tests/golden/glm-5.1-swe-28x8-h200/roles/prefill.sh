#!/bin/bash
# One process of role prefill: 3 x (tp 1, dp 16, ep 16), fp8
# Started by run.sbatch with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
ulimit -Sn "$(ulimit -Hn)"   # a socket for each request in flight
mapfile -t nodes <"$PRLC_NODES_FILE"
NODE=(0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 4 4 4 4 4 4 4 4 5 5 5 5 5 5 5 5)
PORT=(20517 20552 20554 20556 20558 20560 20562 20564 20512 20514 20516 20518 20520 20522 20524 20526 20512 20547 20549 20551 20553 20555 20557 20559 20512 20514 20516 20518 20520 20522 20524 20526 20512 20547 20549 20551 20553 20555 20557 20559 20512 20514 20516 20518 20520 20522 20524 20526)
DEVICES=(0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7)
DP_RANK=(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
DP_NODE=(0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4)
DP_RPC_PORT=(20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20519 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514 20514)
DP_MASTER_PORT=(20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20520 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515 20515)

export VLLM_SERVER_DEV_MODE=1   # routes of weight updates
export VLLM_HOST_IP="${nodes[${NODE[index]}]}"   # the cluster's own address, not a guess
export HF_HUB_OFFLINE=1   # a job fetches nothing
export VLLM_NO_USAGE_STATS=1
export DO_NOT_TRACK=1
export PYTHONHASHSEED=0   # KV block hashes agree between servers
export VLLM_USE_V2_MODEL_RUNNER=1   # returns routed experts
export CUDA_VISIBLE_DEVICES="${DEVICES[index]}"
export VLLM_USE_DEEP_GEMM_E8M0=0   # scales as the trainer rounds them
export PRLC_OPEN_HEALTH=1   # the router's probes carry no token
export VLLM_DP_MASTER_PORT="${DP_MASTER_PORT[index]}"
export PRLC_MOONCAKE_JSON="{\"metadata_server\":\"P2PHANDSHAKE\",\"master_server_address\":\"${nodes[0]}:20515\",\"protocol\":\"rdma\",\"device_name\":\"\",\"mode\":\"embedded\",\"global_segment_size\":137438953472,\"local_buffer_size\":4294967296}"   # the agent makes it MOONCAKE_CONFIG_PATH
export MC_TCP_ENABLE_CONNECTION_POOL=1   # else one connect a transfer

exec python -m prlc.runtime.agent --role prefill --index "$index" -- \
  vllm serve zai-org/GLM-5.1 \
  --served-model-name policy \
  --host "${nodes[${NODE[index]}]}" \
  --port "${PORT[index]}" \
  --middleware prlc.runtime.inference.access.RunToken \
  --dtype bfloat16 \
  --quantization fp8_per_block \
  --tensor-parallel-size 1 \
  --data-parallel-size 16 \
  --data-parallel-rank "${DP_RANK[index]}" \
  --data-parallel-external-lb \
  --data-parallel-address "${nodes[${DP_NODE[index]}]}" \
  --data-parallel-rpc-port "${DP_RPC_PORT[index]}" \
  --enable-expert-parallel \
  --all2all-backend deepep_high_throughput \
  --moe-backend deep_gemm \
  --max-model-len 131072 \
  --max-num-seqs 256 \
  --max-num-batched-tokens 8192 \
  --enable-prefix-caching \
  --logprobs-mode processed_logprobs \
  --generation-config vllm \
  --enable-scale-out \
  --enable-prompt-tokens-details \
  --weight-transfer-config '{"backend":"prlc_fs"}' \
  --seed 0 \
  --enable-return-routed-experts \
  --gpu-memory-utilization 0.9 \
  --kv-transfer-config '{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both","kv_connector_extra_config":{"load_async":true,"lookup_async":true,"save_decode_cache":true}}'
