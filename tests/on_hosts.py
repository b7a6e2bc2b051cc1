"""Train a small model in one of several processes, as experiments/main.py.

  PYTHONPATH=.:tests python tests/on_hosts.py WORKDIR HOST:PORT 2 0 {}

The last word holds settings that differ. A line 'round N' is a checkpoint.
"""

import json
import os
import sys
import time

from absl import logging

from fedjax_pfl import hosts


def main(workdir, coordinator, num_processes, process_id, changes):
  logging.set_verbosity(logging.WARNING)
  several = int(num_processes) > 1
  place = int(num_processes), int(process_id)
  hosts.connect(*((coordinator, *place) if several else (None,)), start=60)
  with hosts.ending():
    import jax
    import small_runs

    from fedjax_pfl.train import train

    jax.config.update('jax_disable_most_optimizations', True)
    changes = json.loads(changes)
    print('devices', jax.device_count(), flush=True)
    slow = changes.pop('seconds', 0)
    if slow:  # for those who want to kill it in the middle
      hosts.SharedRun.log = lambda self, **_: time.sleep(slow)
    train(small_runs.make_experiment(**changes), workdir)
    print('the end', os.getpid())


if __name__ == '__main__':
  main(*sys.argv[1:])
