#!/bin/bash
# A real Slurm of emulated nodes on one machine, for tests. Needs root, slurmctld, slurmd, munge and iproute2.
#
#   lab.sh start DIR NODES      bring up n01.. below DIR and wait until all are idle
#   lab.sh run DIR COMMAND...   run COMMAND on the login host, in $PWD
#   lab.sh on DIR NODE COMMAND  run COMMAND on a node
#   lab.sh crash|boot DIR NODE  a node's power is lost; it boots again
#   lab.sh unplug|plug DIR NODE its network link goes down; up
#   lab.sh killctl|startctl DIR slurmctld ends (TERM); it starts again with its saved state
#   lab.sh stop DIR             end everything
#
# LAB_GPUS=8 gives every node that many fake GPUs; LAB_PLUGIN=FILE.so loads a SPANK plugin; LAB_CONF adds lines to
# slurm.conf (of a key the last value counts).
#
# Every node is a set of namespaces (network, host name, mounts, IPC, processes) inside the controller's, so that
# killing the controller's init ends every daemon and job of the lab. There is no route out of the lab's network.
set -euo pipefail

self=$(readlink -f "$0")
namespaces=(--net --uts --mount --ipc --pid)

die() { echo "lab: $*" >&2; exit 1; }

# The init of the controller, only while that process is still the lab's.
controller() {
  local pid
  pid=$(cat "$lab/run/controller.pid" 2>/dev/null) || return 1
  grep -qa -- _controller "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

# First child of a process: `unshare --fork` stays as the parent of a namespace's init.
child_of() {
  local pid _
  for _ in $(seq 200); do
    pid=
    read -r pid _ 2>/dev/null <"/proc/$1/task/$1/children" || true   # the file has no newline
    if [ -n "$pid" ]; then echo "$pid"; return; fi
    sleep 0.02
  done
  return 1
}

inside() {
  local pid
  pid=$(controller) || die "no lab at $lab"
  nsenter -t "$pid" "${namespaces[@]}" --wdns="$PWD" -- "$@"
}

reap_forever() { while :; do sleep 1000000 & wait $!; done; }

write_configuration() {
  local nodes=$1 number names
  mkdir -p "$lab"/{etc/slurm,state,spool,log,run,munge}
  chmod 700 "$lab/munge"
  names="n[01-$(printf %02d "$nodes")]"
  {
    printf '127.0.0.1 localhost\n10.77.0.1 ctl\n'
    for number in $(seq "$nodes"); do printf '10.77.1.%d n%02d\n' "$number" "$number"; done
  } >"$lab/etc/hosts"
  : >"$lab/etc/resolv.conf"
  sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >"$lab/etc/nsswitch.conf"
  echo CgroupPlugin=cgroup/v1 >"$lab/etc/slurm/cgroup.conf"   # used by nothing here, yet 22.05 wants one
  cat >"$lab/etc/slurm/slurm.conf" <<CONF
ClusterName=lab
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
CredType=cred/munge
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool/%n
SlurmctldPidFile=$lab/run/slurmctld.pid
SlurmdPidFile=$lab/run/slurmd.%n.pid
SlurmctldLogFile=$lab/log/slurmctld.log
SlurmdLogFile=$lab/log/slurmd.%n.log
KillWait=10
SlurmdTimeout=60
MessageTimeout=30
InactiveLimit=0
MinJobAge=3600
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
NodeName=$names CPUs=${LAB_CPUS:-16} Boards=1 Sockets=1 CoresPerSocket=${LAB_CPUS:-16} ThreadsPerCore=1 RealMemory=2000000 ${LAB_GPUS:+Gres=gpu:$LAB_GPUS} State=UNKNOWN
PartitionName=${LAB_PARTITION:-main} Nodes=ALL Default=YES MaxTime=INFINITE State=UP
${LAB_CONF:-}
CONF
  if [ -n "${LAB_PLUGIN:-}" ]; then echo "required $LAB_PLUGIN" >"$lab/etc/slurm/plugstack.conf"; fi
  if [ -n "${LAB_GPUS:-}" ]; then
    mkdir -p "$lab/dev"
    for number in $(seq 0 $((LAB_GPUS - 1))); do [ -e "$lab/dev/nvidia$number" ] || mknod -m 666 "$lab/dev/nvidia$number" c 1 3; done
    echo "NodeName=$names Name=gpu File=$lab/dev/nvidia[0-$((LAB_GPUS - 1))]" >"$lab/etc/slurm/gres.conf"
    echo GresTypes=gpu >>"$lab/etc/slurm/slurm.conf"
  fi
}

controller_init() {
  local file
  mount --make-rprivate /
  hostname ctl
  ip link set lo up
  mkdir -p /etc/slurm
  for file in hosts resolv.conf nsswitch.conf; do mount --bind "$lab/etc/$file" "/etc/$file"; done
  mount --bind "$lab/etc/slurm" /etc/slurm   # so that no job needs -f or SLURM_CONF
  mount -t tmpfs -o mode=755 tmpfs /run      # munge's default socket, private to the lab
  mkdir -m 755 /run/munge
  ip link add br0 type bridge stp_state 0 forward_delay 0
  ip addr add 10.77.0.1/16 dev br0
  ip link set br0 up
  dd if=/dev/urandom of="$lab/munge/key" bs=1 count=128 2>/dev/null
  chmod 400 "$lab/munge/key"
  munged --key-file="$lab/munge/key" --socket=/run/munge/munge.socket.2 --pid-file="$lab/run/munged.pid" \
    --log-file="$lab/munge/log" --seed-file="$lab/munge/seed"
  slurmctld -i
  : >"$lab/run/controller.ready"
  reap_forever
}

node_up() {
  local name=$1 outer pid
  rm -f "$lab/run/$name.go"
  mkfifo "$lab/run/$name.go"
  ip link del "v$name" 2>/dev/null || true   # a crashed node's link goes with its namespace, but not at once
  mkdir -p "$lab/spool/$name"
  setsid unshare "${namespaces[@]}" --fork --kill-child=KILL --mount-proc \
    bash "$self" _node "$lab" "$name" </dev/null >"$lab/log/$name.init" 2>&1 &
  outer=$!
  pid=$(child_of "$outer") || die "node $name did not start"
  echo "$pid" >"$lab/run/$name.pid"
  ip link add "v$name" type veth peer name eth0 netns "$pid"
  ip link set "v$name" master br0 up
  echo go >"$lab/run/$name.go"
}

node_init() {
  local name=$1
  read -r _ <"$lab/run/$name.go"
  hostname "$name"
  ip link set lo up
  ip addr add "10.77.1.$((10#${name#n}))/16" dev eth0
  ip link set eth0 up
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  slurmd -N "$name"
  reap_forever
}

start() {
  local nodes=$1 outer pid _
  if controller >/dev/null; then die "already running at $lab"; fi
  write_configuration "$nodes"
  setsid unshare "${namespaces[@]}" --fork --kill-child=KILL --mount-proc \
    bash "$self" _controller "$lab" </dev/null >"$lab/log/controller.init" 2>&1 &
  outer=$!
  pid=$(child_of "$outer") || die "no namespaces: $(cat "$lab/log/controller.init")"
  echo "$pid" >"$lab/run/controller.pid"
  for _ in $(seq 600); do
    [ -e "$lab/run/controller.ready" ] && break
    kill -0 "$pid" 2>/dev/null || die "controller died: $(cat "$lab/log/controller.init")"
    sleep 0.05
  done
  inside bash "$self" _nodes "$lab" "$nodes" </dev/null
  for _ in $(seq 600); do
    if [ "$(inside sinfo -h -N -o %t 2>/dev/null | grep -cx idle)" = "$nodes" ]; then return; fi
    sleep 0.1
  done
  die "nodes not idle: $(inside sinfo 2>&1)"
}

stop() {
  local pid _
  pid=$(controller) || return 0
  kill -KILL "$pid"   # init of the outer process namespace: the kernel ends all the rest
  for _ in $(seq 200); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.05
  done
  die "the controller's init did not end"
}

command=$1
lab=$(readlink -f "$2")
shift 2
case $command in
  start) start "$1" ;;
  run) inside "$@" ;;
  on) node=$1; shift; inside nsenter -t "$(cat "$lab/run/$node.pid")" "${namespaces[@]}" --wdns="$PWD" -- "$@" ;;
  crash) inside kill -KILL "$(cat "$lab/run/$1.pid")" ;;
  boot) inside bash "$self" _node_up "$lab" "$1" </dev/null ;;
  unplug) inside ip link set "v$1" down ;;
  plug) inside ip link set "v$1" up ;;
  killctl) inside kill -TERM "$(cat "$lab/run/slurmctld.pid")" ;;
  startctl) inside slurmctld ;;
  stop) stop ;;
  _controller) controller_init ;;
  _nodes) for number in $(seq "$1"); do node_up "$(printf 'n%02d' "$number")"; done ;;
  _node_up) node_up "$1" ;;
  _node) node_init "$1" ;;
  *) die "unknown command $command" ;;
esac
