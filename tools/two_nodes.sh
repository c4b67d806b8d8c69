#!/usr/bin/env bash
# Rehearse a training on two machines: two network namespaces with a cable between them, torchrun in each.
# Needs root and iproute2; leaves nothing behind. Arguments are those of `faceanon fit`, for example
#   tools/two_nodes.sh --config configs/rotation_s1.yaml --trainer.max_epochs 1 --trainer.limit_train_batches 2
# PER_NODE is the number of processes a machine (1), PYTHON the interpreter (python).
set -euo pipefail

PER_NODE=${PER_NODE:-1} PYTHON=${PYTHON:-python}
namespaces=(faceanon-a faceanon-b) addresses=(10.77.0.1 10.77.0.2)
cleanup() { for namespace in "${namespaces[@]}"; do ip netns del "$namespace" 2>/dev/null || true; done; }
trap cleanup EXIT
cleanup

for namespace in "${namespaces[@]}"; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
done
ip link add faceanon0 netns "${namespaces[0]}" type veth peer name faceanon1 netns "${namespaces[1]}"
for node in 0 1; do
    ip -n "${namespaces[$node]}" address add "${addresses[$node]}/24" dev "faceanon$node"
    ip -n "${namespaces[$node]}" link set "faceanon$node" up
done

jobs=()
for node in 0 1; do
    ip netns exec "${namespaces[$node]}" env OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME="faceanon$node" \
        "$PYTHON" -m torch.distributed.run --nnodes 2 --node-rank "$node" --nproc-per-node "$PER_NODE" \
        --master-addr "${addresses[0]}" --master-port 29500 \
        -m faceanon fit "$@" --trainer.accelerator cpu --trainer.devices "$PER_NODE" --trainer.num_nodes 2 \
        --trainer.strategy ddp_find_unused_parameters_true &
    jobs+=($!)
done
status=0
for job in "${jobs[@]}"; do wait "$job" || status=$?; done
for node in 0 1; do  # what went over the cable
    ip -n "${namespaces[$node]}" -s link show "faceanon$node" |
        awk -v node="$node" '/TX:/ { getline; print "machine " node " sent " $1 " bytes" }'
done
exit "$status"
