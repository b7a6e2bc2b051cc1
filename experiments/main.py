"""Run one experiment:

  fedjax-pfl train --config=digits:fedbabu \\
      --workdir=runs/a

Add ,quick to the config for a first look. Any field of it can be given, as
--config.rounds=4; --help lists them. The same command continues a run that was
stopped, and does nothing for one that is finished. SIGTERM and Ctrl-C stop it
after the current round, with a checkpoint (status 143 and 130). --forecast
prints the memory that the run takes, and writes nothing.

Several processes, on one machine or many, do one run together; each is started
with its own number, here 0 or 1:

  fedjax-pfl train --config=.. --workdir=.. \\
      --coordinator=HOST:PORT --num_processes=2 --process_id=0

or all of them with --coordinator=auto, on SLURM, TPU pods and the like.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
WORKDIR = flags.DEFINE_string('workdir', None, 'the directory of the run')
FORECAST = flags.DEFINE_bool(
  'forecast', False, 'print the memory that the run takes, and stop'
)
CLEAN = flags.DEFINE_bool(
  'clean', True, 'train a run with an attack without it, too, in WORKDIR/clean'
)
COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of process 0 of several processes; or auto'
)
NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'number of processes'
)
PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'number of this process, from 0'
)


def main(overrides):
  settings = commandline.read_settings(CONFIG.value, overrides)
  if not FORECAST.value:
    commandline.require('workdir')
  from fedjax_pfl.core import machine
  from fedjax_pfl.runs import run_dir
  from fedjax_pfl.training import multihost

  if COORDINATOR.value:  # each process is given its share of the machine
    devices = settings.get('devices')  # not checked yet
    machine.divide_cpu((type(devices) is int and devices) or 1)
  elif WORKDIR.value and (began := run_dir.devices_of(WORKDIR.value)):
    # As many as the run was started on, on fewer cores, too.
    machine.divide_cpu(max(began, machine.num_cores()))
  multihost.connect(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
  with multihost.ending():
    result = run_experiment(settings, WORKDIR.value)
    if FORECAST.value:
      return
    if CLEAN.value and 'attackers' in result.get('lies', {}):
      result['lies']['clean'] = train_clean(settings, result['lies'])
    show(result)


def run_experiment(settings, workdir):
  """Return the result of a run; with --forecast log its memory alone."""
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache
  from fedjax_pfl.training.build import build_experiment
  from fedjax_pfl.training.loop import train

  if not FORECAST.value:
    compile_cache.cache_programs(progress.log)
  experiment = build_experiment(settings, progress.log)
  if FORECAST.value:
    return log_memory(experiment, progress.log)
  return train(experiment, workdir)


def show(result):
  """Print the result of a run, and where it is."""
  from fedjax_pfl.core import progress
  from fedjax_pfl.results.runs.run import extremes
  from fedjax_pfl.results.tables.result_table import table
  from fedjax_pfl.training import multihost

  progress.log(table([result]))
  if multihost.is_first() and (named := extremes(WORKDIR.value)):
    progress.log(named)
  progress.log(f'Everything about this run is in {WORKDIR.value}')


def train_clean(config, lies):
  """Train the run without its attack; return the numbers of honest clients."""
  from fedjax_pfl.core import progress
  from fedjax_pfl.evaluation.measures import main_of
  from fedjax_pfl.evaluation.summary import summarise
  from fedjax_pfl.runs import run_dir
  from fedjax_pfl.settings import parse_config

  settings, path = parse_config(config), f'{WORKDIR.value}/clean'
  rule = settings.aggregation
  progress.log(f'The same run without its attack, in {path}:')
  if rule.is_robust and not rule.bears:  # as many as with the attack
    clients = settings.data.num_seen_clients
    rule = rule._replace(bears=len(lies['attackers']) / clients)
  attack = type(settings.attack)()
  run_experiment(settings._replace(attack=attack, aggregation=rule), path)
  clients, sign = run_dir.load_clients(path), main_of(settings.data.loss).sign
  clients.train_count[lies['attackers']] = 0
  return {
    view: summarise(scores, clients.train_count, sign)
    for view, scores in clients.scores.items()
  }


def log_memory(experiment, log):
  """Log the memory of a run; refuse a run that does not fit."""
  from fedjax_pfl.results.tables.table import align
  from fedjax_pfl.training import memory_estimate

  forecasts = memory_estimate.forecasts(experiment)
  log(align(memory_estimate.as_table(forecasts)))
  for _, forecast in forecasts:
    memory_estimate.check_fits(forecast, experiment)


if __name__ == '__main__':
  commandline.run(main, required=['config'])
