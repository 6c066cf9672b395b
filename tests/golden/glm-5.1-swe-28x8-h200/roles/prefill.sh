#!/bin/bash
# One process of role prefill: 7 x (tp 1, dp 8, ep 8), fp8
# Started by run.sbatch with the process's index; waits, watches and restarts through the node agent.
set -euo pipefail

index=${1:-$SLURM_PROCID}
mapfile -t nodes <"$PRLC_NODES_FILE"
NODE=(0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 4 4 4 4 4 4 4 4 5 5 5 5 5 5 5 5 6 6 6 6 6 6 6 6)
PORT=(20004 20039 20041 20043 20045 20047 20049 20051 20000 20035 20037 20039 20041 20043 20045 20047 20000 20035 20037 20039 20041 20043 20045 20047 20000 20035 20037 20039 20041 20043 20045 20047 20000 20035 20037 20039 20041 20043 20045 20047 20000 20035 20037 20039 20041 20043 20045 20047 20000 20035 20037 20039 20041 20043 20045 20047)
DEVICES=(0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7)
DP_RANK=(0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7)
DP_NODE=(0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 4 4 4 4 4 4 4 4 5 5 5 5 5 5 5 5 6 6 6 6 6 6 6 6)
DP_RPC_PORT=(20006 20006 20006 20006 20006 20006 20006 20006 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002 20002)
DP_MASTER_PORT=(20007 20007 20007 20007 20007 20007 20007 20007 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003 20003)

export VLLM_SERVER_DEV_MODE=1   # routes of weight updates
export VLLM_HOST_IP="${nodes[${NODE[index]}]}"   # the cluster's own address, not a guess
export HF_HUB_OFFLINE=1   # a job fetches nothing
export VLLM_NO_USAGE_STATS=1
export DO_NOT_TRACK=1
export PYTHONHASHSEED=0   # KV block hashes agree between servers
export VLLM_USE_V2_MODEL_RUNNER=1   # returns routed experts
export CUDA_VISIBLE_DEVICES="${DEVICES[index]}"
export VLLM_DP_MASTER_PORT="${DP_MASTER_PORT[index]}"
export PRLC_MOONCAKE_JSON="{\"metadata_server\":\"P2PHANDSHAKE\",\"master_server_address\":\"${nodes[0]}:20002\",\"protocol\":\"rdma\",\"device_name\":\"\",\"mode\":\"embedded\",\"global_segment_size\":137438953472,\"local_buffer_size\":4294967296}"   # the agent makes it MOONCAKE_CONFIG_PATH
export MC_TCP_ENABLE_CONNECTION_POOL=1   # else one connect a transfer

exec python -m prlc.runtime.agent --role prefill --index "$index" -- \
  vllm serve zai-org/GLM-5.1 \
  --served-model-name policy \
  --host "${nodes[${NODE[index]}]}" \
  --port "${PORT[index]}" \
  --dtype bfloat16 \
  --quantization fp8 \
  --tensor-parallel-size 1 \
  --data-parallel-size 8 \
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
