"""Results of a few clients whose accuracies are given: nothing is trained."""

from pathlib import Path

import finished_runs
import numpy as np
import small_runs

from experiments.reproduction.cells import Cell, Published, Reading, Table
from experiments.reproduction.claims import write
from fedjax_pfl.core.types import Scores

TESTS = 100  # of each client: an image is a point
NAMES = ('fedbabu', 'fedavg', 'fedper')
SHARDS = (2, 5)
CLAIM = """
[[claims]]
name = 'a'
title = 'the first'
sentence = 'FedBABU is better'
table = 'fedbabu/98'
where = 'shards_per_client=2,metric=personalized_accuracy'
"""
COMPARISON = """
[[claims.comparisons]]
above = 'algorithm={}'
below = 'algorithm={}'
"""


def cell_of(algorithm, shards, mean):
  setting = (algorithm, 10, shards, 0.3, 1, 'shards')
  number = ('personalized_accuracy', {}, mean, 9.0)
  return Cell(
    Published('fedbabu', '98', 'digits', 'tiny', *setting, *number),
    settings_of(algorithm, shards),
    Reading('finetuned'),
  )


def settings_of(algorithm, shards):
  return small_runs.make_settings(algorithm=algorithm, shards_per_client=shards)


TABLE = Table(
  'fedbabu/98',
  'A toy',
  tuple(
    cell_of(name, shards, 60.0 - 5 * place)
    for shards in SHARDS
    for place, name in enumerate(NAMES)
  ),
  ('shards_per_client',),
  ('algorithm', 'metric'),
)
load_table = {TABLE.name: TABLE}.__getitem__


def make_run(folder, algorithm, accuracy, *, seed=0, shards=2):
  """Write the finished run of a cell; `accuracy` is that of its clients."""
  scores = Scores(np.asarray(accuracy), np.full(len(accuracy), TESTS))
  return finished_runs.make_run(
    Path(folder) / 'runs' / f'{algorithm}_{shards}_{seed}',
    data=f'images-clients{shards}{seed}',
    scores={'finetuned': scores},
    settings={**settings_of(algorithm, shards), 'seed': seed},
  )


def judge(folder, *pairs):
  """Return the verdict of a claim about these pairs from the results there."""
  path = folder / 'claims.toml'
  comparisons = ''.join(COMPARISON.format(*pair) for pair in pairs)
  path.write_text(CLAIM + comparisons)
  (verdict,) = write.judge(path, folder, load_table)
  return verdict
