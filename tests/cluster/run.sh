#!/bin/bash
# The recipe of docs/howto/clusters.md on two SLURM nodes of this machine, and
# every way in which a job ends early. Each must leave the model of an unbroken
# run. By hand, as root, in a clone after `make test`; 20 minutes on two cores:
#
#   bash tests/cluster/run.sh [FOLDER]
set -u
cd "$(dirname "$0")/../.."
. tests/cluster/slurm.sh
folder=${1:-$(mktemp -d)}
export SCRATCH=$folder
trap stop_slurm EXIT
start_slurm "$folder/slurm" || exit 1

# The page's job, with a task and no GPU on each node, and a short training.
recipe() {  # NAME [PATTERN]: job.sh of the page, in runs/NAME
  sed -n '/^```bash/,/^```/p;' docs/howto/clusters.md | sed '/^```/d' |
    sed '/^gcloud/,$d' | sed \
      -e 's/--ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=4/--ntasks-per-node=1/' \
      -e 's/--signal=TERM@[0-9]*/--signal=TERM@20/' \
      -e "s#configs/fedbabu_cifar100.py#configs/digits.py:fedavg --config.rounds=40 --config.log_every=1#" \
      -e "s#runs/fedbabu_seed0#runs/$1#" -e "${2:-}"
}
submit() { recipe "$1" "${3:-}" | sbatch --parsable --output="$folder/$1.log" $2; }
middle() {  # NAME: wait until it has trained a few rounds
  for _ in $(seq 180); do
    [ "$(cat "$folder/runs/$1/metrics.jsonl" 2> /dev/null | wc -l)" -ge 5 ] && return
    sleep 0.5
  done
}
ended() {  # JOB: wait until it is in no queue
  for _ in $(seq 600); do
    [ -z "$(squeue -h -j "$1" -t PD,R,CG,RQ 2> /dev/null)" ] && return
    sleep 1
  done
}
digest() {
  .venv/bin/python -c 'import json, sys
print(json.load(open(sys.argv[1] + "/result.json"))["model"])' "$folder/runs/$1"
}
check() {  # NAME: its model is that of the unbroken run
  stops=$(grep -c 'the same command continues' "$folder/$1.log")
  if [ "$(digest "$1")" = "$(digest whole)" ]; then
    echo "ok    $1, stopped with a checkpoint $stops times"
  else
    echo "FAIL  $1"
    tail -n 20 "$folder/$1.log"
    failed=1
  fi
}
failed=0

ended "$(submit whole '')" && check whole

job=$(submit requeue '')
middle requeue && scontrol requeue "$job" && ended "$job" && check requeue

job=$(submit term '')
middle term && scancel --signal=TERM "$job" && ended "$job" && check term

job=$(submit preempted '')
middle preempted && srun -N2 -p urgent sleep 1
ended "$job" && check preempted

job=$(submit limit '' 's/--time=12:00:00/--time=2/; s/rounds=40/rounds=40 --config.local_epochs=8/')
ended "$job" && check limit

# Without requeue: the job fails, says so in a line, and is submitted again.
job=$(submit killed --no-requeue)
middle killed && pkill -9 -o -f "workdir=$folder/runs/killed" && ended "$job"
tail -n 4 "$folder/killed.log"
ended "$(submit killed '')" && check killed

job=$(submit cancelled '')
middle cancelled && scancel "$job" && ended "$job"
ended "$(submit cancelled '')" && check cancelled

# An array of seeds, a task each; and two jobs that share a sweep.
one="--wrap=.venv/bin/python experiments"
array=$(sbatch --parsable --array=0-1 --output="$folder/array.log" \
  "$one/main.py --config=configs/digits.py:fedavg,quick \
  --config.seed=\$SLURM_ARRAY_TASK_ID --workdir=$folder/runs/seed\$SLURM_ARRAY_TASK_ID")
ended "$array"
sweep="$one/sweep.py --config=configs/digits.py:fedavg,quick \
  --grid=learning_rate=0.01,0.02 --seeds=2 --runs=$folder/sweep"
jobs=$(for _ in 1 2; do sbatch --parsable --output="$folder/sweep%j.log" "$sweep"; done)
for job in $jobs; do ended "$job"; done
for results in "runs/seed*" "sweep/*"; do
  number=$(ls $folder/$results/result.json 2> /dev/null | wc -l)
  echo "      $number results in $results"
done
exit $failed
