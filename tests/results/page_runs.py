"""Finished runs made of numbers."""

import finished_runs
import numpy as np

from fedjax_pfl.core.types import Scores

TESTS = 20
TIMES = 5  # each test counts: enough tests for a worst tenth
CONFIG = {
  'dataset': 'digits',
  'seed': 0,
  'partition': 'shards',
  'shards_per_client': 2,
  'finetune': {'epochs': [1, 5]},
  'views': ['initial', 'finetuned_1', 'finetuned'],
}
CORRECT = {
  'initial': [2, 4, 6, 8],
  'finetuned_1': [8, 8, 8, 8],
  'finetuned': [18, 16, 14, 6],
}
CLASSES = [[30, 0, 5], [0, 40, 0], [0, 0, 35], [20, 20, 0]]
EVALUATED = {2: 20.5, 4: 25.0}  # round -> accuracy of the initial view
LINE = {'time': 1000.0, 'images_per_second': 1000.0, 'global/accuracy': 30.0}
LINE |= {'bytes_up': 1_000_000, 'bytes_down': 2_000_000}


def make_run(
  path,
  algorithm='fedavg',
  *,
  views=CORRECT,
  classes=CLASSES,
  tests=TESTS,
  more=(),
  validation=None,
  unseen=None,
  of_clients=(),
  lines=None,
  data='data',
  **changes,
):
  """Write a finished run; `changes` are of its config, `more` is its result."""
  config = {**CONFIG, 'algorithm': algorithm, **changes}
  curve = {at: 4.0 * config['seed'] + own for at, own in EVALUATED.items()}
  lines = lines or [
    {'round': at, 'initial/accuracy': own, 'sim_seconds': 10.0 * at, **LINE}
    for at, own in curve.items()
  ]
  scores = {
    view: Scores(
      TIMES * np.array(correct),
      np.full(len(correct), TIMES * tests),
      np.ones(len(correct)),
    )
    for view, correct in views.items()
  }
  run = finished_runs.make_run(
    path,
    settings=config,
    data=f'{data}-{config["seed"]}',
    lines=lines,
    scores=scores,
    of_clients={
      **dict.fromkeys(('train_classes', 'test_classes'), classes),
      **{'validation': validation, 'unseen': unseen, **dict(of_clients)},
    },
    result={
      **{'rounds': 4, 'seconds': 90.0, 'global': {'accuracy': 31.25}},
      **dict(more),
    },
  )
  return str(run)
