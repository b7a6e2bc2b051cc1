"""Results of a few clients whose accuracies are given: nothing is trained."""

from pathlib import Path

import finished_runs
import numpy as np
import small_runs

from configs import common
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores
from fedjax_pfl.reproduction.cells import (
  Cell,
  Figure,
  Published,
  Reading,
  Table,
)
from fedjax_pfl.reproduction.claims import write
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.summary import write_summary as write_rows
from fedjax_pfl.settings import parse_config

TESTS = 100  # of each client: an image is a point
CONFIGS = {'digits': parse_config(common.load('digits:fedbabu').to_dict())}
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


def cell_of(algorithm, shards, metric, mean=50.0):
  setting = (algorithm, 10, shards, 0.3, 1, 'shards', metric, {}, mean, 9.0)
  is_global = metric == 'global_accuracy'
  return Cell(
    Published('fedbabu', '98', 'digits', 'tiny', *setting),
    settings_of(algorithm, shards),
    Reading('initial', 'global') if is_global else Reading('finetuned'),
  )


def settings_of(algorithm, shards):
  return small_runs.make_settings(
    algorithm=algorithm,
    shards_per_client=shards,
    eval_global_model=algorithm == 'fedper',
  )


METRICS = 'personalized_accuracy', 'global_accuracy'
TABLE = Table(
  'fedbabu/98',
  'A toy',
  tuple(
    cell_of(name, shards, metric, 60.0 - 5 * place)
    for metric in METRICS
    for shards in SHARDS
    for place, name in enumerate(NAMES)
  ),
  ('shards_per_client',),
  ('algorithm', 'metric'),
)


def load_table(name):
  if name == 'fedbabu/fig1':
    return Figure(name, 'A toy', {}, 'partition', {})
  if name != TABLE.name:
    raise bad_input(
      'table', got=name, expected='a table', choices=[TABLE.name], cause='?'
    )
  return TABLE


def make_run(
  folder, algorithm, accuracy, *, seed=0, shards=2, views=None, **more
):
  """Write the finished run of a cell; `accuracy` is that of its clients."""
  scores = {
    view: Scores(np.asarray(correct), np.full(len(correct), TESTS))
    for view, correct in {'finetuned': accuracy, **(views or {})}.items()
  }
  return finished_runs.make_run(
    Path(folder) / 'runs' / f'{algorithm}_{shards}_{seed}',
    data=f'images-clients{shards}{seed}',
    scores=scores,
    result=more,
    settings={**settings_of(algorithm, shards), 'seed': seed},
  )


def write_summary(folder):
  """Write summary.csv, as the commands that run cells do."""
  write_rows(Results(folder), CONFIGS, print)


def state(folder, *pairs, more=''):
  """Return a file of claims: one, with these pairs of methods."""
  path = folder / 'claims.toml'
  comparisons = ''.join(COMPARISON.format(*pair) + more for pair in pairs)
  path.write_text(CLAIM + comparisons)
  return path


def judge(folder, *pairs, more=''):
  """Return the verdict of that claim from the results in the folder."""
  state(folder, *pairs, more=more)
  return judge_file(folder)


def judge_file(folder):
  """Return the verdict of the claim in the folder's file."""
  path = folder / 'claims.toml'
  (verdict,) = write.judge(path, folder, load_table, CONFIGS, print)
  return verdict
