"""Do a run on one device, on three, and on three and then four; compare them.

  XLA_FLAGS=--xla_force_host_platform_device_count=4 \\
      PYTHONPATH=.:tests/support python -m runs_on_devices FOLDER

In every round all clients take part but for round 2, where the upload of one is
NaN: it is done again without that client.
"""

import json
import pathlib
import shutil
import sys

import jax
import numpy as np
import small_runs
from absl import logging
from on_devices import difference

from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.loop import train

SPOILT, ROUNDS = 3, 4


def experiment_on(devices):
  experiment = small_runs.make_experiment(
    algorithm='fedper',
    client_fraction=1.0,
    rounds=ROUNDS,
    views=('initial',),
    eval_views=(),
    log_every=2,
    eval_every=2,
    validation_fraction=0.2,
    select='validation',
    learning_rate=0.2,
    checkpoint_every=2,
    on_divergence='exclude',
    devices=devices,
  )
  return small_runs.spoil_upload(experiment, SPOILT, [1])


def results_of(path):
  """Return states, the chosen ones, scores, and who was excluded."""
  state = small_runs.restored(experiment_on(1), path)
  excluded = [
    line.get('excluded_clients', []) for line in run_dir.load_metrics(path)
  ]
  assert state.chosen.round == 2  # so that the last states are no answer
  return (*state[:2], state.chosen, small_runs.scores_of(path)), excluded


def continue_on(devices, path, copy):
  """Copy a run as a kill leaves it; finish it on so many devices."""
  train(
    experiment_on(devices), small_runs.unfinish(shutil.copytree(path, copy))
  )


def main(folder):
  jax.config.update('jax_disable_most_optimizations', True)
  jax.config.update('jax_enable_x64', True)
  logging.set_verbosity(logging.ERROR)
  paths = [folder / name for name in ('one', 'three', 'four')]
  for devices, path in zip((1, 3), paths, strict=False):
    train(experiment_on(devices), path)
  continue_on(4, paths[1], paths[2])
  (want, names), *others = map(results_of, paths)
  found = {
    path.name: {
      'difference': difference(
        *(jax.tree.map(np.asarray, tree) for tree in (got, want))
      ),
      'excluded': excluded,
    }
    for path, (got, excluded) in zip(paths[1:], others, strict=True)
  }
  return {**found, 'one': {'difference': 0.0, 'excluded': names}}


if __name__ == '__main__':
  print(json.dumps(main(pathlib.Path(sys.argv[1]))))
