# Two SLURM nodes on this machine, on the loopback alone. Root, Debian:
#   apt-get install --no-install-recommends slurm-wlm munge
# To be sourced; `start_slurm FOLDER`, `stop_slurm`.

start_slurm() {
  SLURM_FOLDER=$1
  mkdir -p "$1"/{state,spool0,spool1,munge}
  # jax asks for the name of the first node.
  for node in pfl0 pfl1; do
    grep -q " $node\$" /etc/hosts || echo "127.0.0.1 $node" >> /etc/hosts
  done
  [ -s /etc/munge/munge.key ] || mungekey --create
  chown munge "$1"/munge /etc/munge/munge.key
  mkdir -p /run/munge && chown munge /run/munge
  MUNGED=/run/munge/munged.pid
  pgrep -x munged > /dev/null && MUNGED= || runuser -u munge -- munged
  cat > "$1"/slurm.conf << END
ClusterName=pfl
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmctldParameters=enable_configless
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=20
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/%n.log
NodeName=pfl0 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=17001 CPUs=1
NodeName=pfl1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=17002 CPUs=1
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF State=UP
END
  export SLURM_CONF=$1/slurm.conf
  slurmctld && slurmd -N pfl0 && slurmd -N pfl1
  for _ in $(seq 30); do
    [ "$(sinfo -h -t idle -o %D -p main)" = 2 ] && return
    sleep 1
  done
  sinfo
  tail -n 5 "$1"/*.log
  return 1
}

stop_slurm() {
  scancel --quiet --full --signal=KILL --state=RUNNING || true
  scancel --quiet --user=root || true
  for _ in $(seq 30); do
    [ -z "$(squeue -h 2> /dev/null)" ] && break
    sleep 1
  done
  for pid in "$SLURM_FOLDER"/{pfl0,pfl1,slurmctld}.pid $MUNGED; do
    [ -f "$pid" ] && kill "$(cat "$pid")"
  done
}
