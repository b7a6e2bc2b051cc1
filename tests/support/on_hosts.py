"""Train a small model in one of several processes, as experiments/main.py.

  PYTHONPATH=.:tests/support python -m on_hosts WORKDIR HOST:PORT 2 0 {}

The last word holds settings that differ, the width of the model, and for how
many `seconds` it waits between two stops.
"""

import json
import sys
import time

from absl import logging

from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import multihost


def main(workdir, coordinator, num_processes, process_id, changes):
  logging.set_verbosity(logging.WARNING)
  several = int(num_processes) > 1
  place = int(num_processes), int(process_id)
  multihost.connect(*((coordinator, *place) if several else (None,)), start=60)
  with multihost.ending():
    import jax
    import small_runs
    from helpers import make_task

    from fedjax_pfl.training.loop import train

    jax.config.update('jax_disable_most_optimizations', True)
    changes = json.loads(changes)
    print('devices', jax.device_count(), flush=True)
    slow_down(changes.pop('seconds', 0))
    if width := changes.pop('width', 0):  # of the layer that devices divide
      small_runs.TASK = make_task(width, shape=(8, 8, 1), classes=10)
    # Personal heads: no process has the states of all clients.
    changes = {'algorithm': 'fedper', **changes}
    train(small_runs.make_experiment(**changes), workdir)
    print('the end')


def slow_down(seconds):
  """Wait with every line of metrics, for those who kill in the middle."""
  log = run_dir.Run.log

  def slow_log(self, **numbers):
    time.sleep(seconds)
    log(self, **numbers)

  run_dir.Run.log = slow_log


if __name__ == '__main__':
  main(*sys.argv[1:])
