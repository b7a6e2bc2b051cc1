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
[ -z "$(ls -A "$folder" 2> /dev/null)" ] || { echo "$folder is not empty" && exit 1; }
export SCRATCH=$folder
trap stop_slurm EXIT
start_slurm "$folder/slurm" || exit 1

# The page's jobs, with a task and no GPU on each node, and a short training.
recipe() {  # NAME PATTERN [BLOCK]: a job of the page, in runs/NAME
  awk -v block="${3:-1}" '/^```bash/ { at++; on = 1; next } /^```/ { on = 0 }
    on && at == block' docs/howto/clusters.md | sed \
      -e 's/--ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=4/--ntasks-per-node=1/' \
      -e 's/--gpus=1 --cpus-per-task=4//; s/--signal=TERM@[0-9]*/--signal=TERM@20/' \
      -e "s#--config=fedbabu_cifar100#--config=digits:fedavg --config.rounds=40 --config.log_every=1#" \
      -e "s#runs/fedbabu_seed0#runs/$1#" -e "${2:-}"
}
submit() {  # NAME [PATTERN]
  recipe "$1" "${2:-}" | sbatch --parsable --output="$folder/$1.log" --open-mode=append
}
middle() {  # NAME: wait until it has trained a few rounds
  for _ in $(seq 180); do
    [ "$(cat "$folder/runs/$1/metrics.jsonl" 2> /dev/null | wc -l)" -ge 5 ] && return
    sleep 0.5
  done
}
ended() {  # JOB: wait until it is in no queue
  for _ in $(seq 1200); do
    [ -z "$(squeue -h -j "$1" -t PD,R,CG,RQ 2> /dev/null)" ] && return
    sleep 1
  done
}
digest() {
  .venv/bin/python -c 'import json, sys
print(json.load(open(sys.argv[1] + "/result.json"))["model"])' "$folder/runs/$1"
}
check() {  # NAME [UNBROKEN STOPS]: it went on, to the model of the unbroken run
  stops=$(grep -c 'the same command continues' "$folder/$1.log")
  resumed=$(grep -c 'Continuing after round' "$folder/$1.log")
  model=$(digest "$1")
  if [ "$model" ] && [ "$model" = "$(digest "${2:-$1}")" ] &&
    [ "$stops" -ge "${3:-0}" ] && [ "$resumed" -ge $(($# > 1)) ] &&
    ! grep -q Traceback "$folder/$1.log"; then
    echo "ok    $1, stopped with a checkpoint $stops times, resumed $resumed times, after $SECONDS s"
  else
    echo "FAIL  $1, stopped with a checkpoint $stops times, resumed $resumed times"
    tail -n 20 "$folder/$1.log"
    failed=1
  fi
}
count() {  # NUMBER NAME FILES...: there are as many, and all models differ
  models=$(cat "${@:3}" | grep -o '"model": "[^"]*"' | sort -u | wc -l)
  if [ "$models" = "$1" ]; then
    echo "ok    $2, $models results, after $SECONDS s"
  else
    echo "FAIL  $2: $models results, not $1"
    tail -n 20 "$folder/$2"*.log
    failed=1
  fi
}
failed=0

ended "$(submit whole)" && check whole

job=$(submit requeue)
middle requeue && scontrol requeue "$job" && ended "$job" && check requeue whole 0

job=$(submit term)
middle term && scancel --signal=TERM "$job" && ended "$job" && check term whole 1

job=$(submit preempted)
middle preempted && srun -N2 -p urgent sleep 1
ended "$job" && check preempted whole 1

# A limit is whole minutes: more work, beside an unbroken run of it. Half of the
# time is before SIGTERM, the other half lets a slow machine compile.
longer='s/rounds=40/rounds=40 --config.local_epochs=96/'
ended "$(submit long "$longer")" && check long
job=$(submit limit "s/--time=12:00:00/--time=3/; s/TERM@20/TERM@90/; $longer")
ended "$job" && check limit long 1

# The other task ends with one sentence, the job fails and is not requeued; it
# is submitted again.
job=$(submit killed)
middle killed  # the second of its two tasks
for pid in $(pgrep -f "^[^ ]*/python .*workdir=$folder/runs/killed"); do
  grep -qz '^SLURM_PROCID=1' "/proc/$pid/environ" && kill -9 "$pid"
done
ended "$job"
state=$(scontrol show job "$job")
if grep -q 'JobState=FAILED' <<< "$state" && grep -q 'Restarts=0' <<< "$state" &&
  grep -q 'another process of the run was lost' "$folder/killed.log"; then
  ended "$(submit killed)" && check killed whole 0
else
  echo "FAIL  killed: $state" && tail -n 20 "$folder/killed.log"
  failed=1
fi

job=$(submit cancelled)
middle cancelled && scancel "$job" && ended "$job"
ended "$(submit cancelled)" && check cancelled whole 0

# The page's array of seeds; one of its tasks is stopped and requeued.
job=$(recipe array '' 2 | sbatch --parsable --output="$folder/array%a.log")
middle seed1 && scancel --signal=TERM "${job}_1" && ended "$job"
if ! grep -q 'Continuing after round' "$folder/array1.log"; then
  echo "FAIL  array: the stopped task was not resumed" && failed=1
fi
count 3 array "$folder"/runs/seed*/result.json

# Two jobs share a sweep: both have the seed 3, which one of them trains.
quick="--config=configs/digits.py:fedavg,quick"
one="--wrap=.venv/bin/python experiments"
jobs=$(for seeds in 0:4 3:6; do
  sbatch --parsable --output="$folder/sweep%j.log" \
    "$one/sweep.py $quick --grid=learning_rate=0.02 --seeds=$seeds --workdir=$folder/sweep"
done)
for job in $jobs; do ended "$job"; done
count 6 sweep "$folder"/sweep/*/result.json

# Two jobs divide a comparison; the same command without a share trains nothing.
words="$quick --methods=fedavg,fedbabu --seeds=2 --grid=learning_rate=0.02 \
  --config.validation_fraction=0.2 --workdir=$folder/compare"
jobs=$(for share in 1/2 2/2; do
  sbatch --parsable --output="$folder/compare%j.log" "$one/compare.py $words --shard=$share"
done)
for job in $jobs; do ended "$job"; done
.venv/bin/fedjax-pfl compare $words > "$folder/compare.log" 2>&1
if grep -q fedbabu "$folder"/compare/compare_seeds_0_1.csv && ! grep -q '^round' "$folder/compare.log"; then
  echo "ok    compare, divided, after $SECONDS s"
else
  echo "FAIL  compare"
  tail -n 20 "$folder"/compare*.log
  failed=1
fi
exit $failed
