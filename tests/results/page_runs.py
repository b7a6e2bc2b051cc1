"""Finished runs made of numbers."""

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.runs import run_dir

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
  data='data',
  **changes,
):
  """Write a finished run; `changes` are of its config, `more` is its result."""
  config = {**CONFIG, 'algorithm': algorithm, **changes}
  run = run_dir.open_run(path, config, data=f'{data}-{config["seed"]}')
  lift = 4.0 * config['seed']
  for at, accuracy in EVALUATED.items():
    run.log(
      round=at,
      images_per_second=1000.0,
      bytes_up=1_000_000,
      bytes_down=2_000_000,
      sim_seconds=10.0 * at,
      **{'initial/accuracy': accuracy + lift, 'global/accuracy': 30.0},
    )
  scores = {
    view: Scores(
      TIMES * np.array(correct),
      np.full(len(correct), TIMES * tests),
      np.ones(len(correct)),
    )
    for view, correct in views.items()
  }
  number = len(next(iter(views.values())))
  run.write_clients(
    scores,
    ids=np.arange(number),
    train_count=np.full(number, 40),
    train_classes=classes,
    test_classes=classes,
    validation=validation,
    unseen=unseen,
  )
  run.write_result(
    algorithm=algorithm,
    dataset=config['dataset'],
    rounds=4,
    seconds=90.0,
    views={view: summarise(one) for view, one in scores.items()},
    **{'global': {'accuracy': 31.25}, **dict(more)},
  )
  run.close()
  return str(path)
