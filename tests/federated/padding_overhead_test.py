"""The padding overhead of chunks, and the limit of a chunk from it."""

import numpy as np
import pytest
from small_runs import make_experiment

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data import partition
from fedjax_pfl.federated.padding_overhead import (
  expected_overhead,
  largest_chunk,
  overhead,
)
from fedjax_pfl.training.program import limit_chunk

LABELS = np.repeat(np.arange(10), 5000)


def dirichlet(beta=0.1):
  train, _ = partition(
    *('dirichlet', LABELS, LABELS[::5]),
    num_clients=100,
    num_classes=10,
    dirichlet_beta=beta,
    seed=0,
  )
  return np.array([len(rows) for rows in train])


@pytest.mark.parametrize(
  ('counts', 'chunk', 'expected'),
  [
    ((40, 10, 20), 1, 0),
    ((40, 10, 20), 3, 1 - 7 / 12),
    ((40, 10, 20), 2, 1 - 7 / 8),  # 1 and 2 steps, then the largest alone
    ((11, 20, 19), 3, 0),  # a partial batch is a step
    ((0, 0), 2, 0),
    ((0, 10), 2, 0.5),
  ],
)
def test_by_hand(counts, chunk, expected):
  assert overhead(np.array(counts), chunk, 10) == pytest.approx(expected)


def test_the_limit_keeps_the_overhead_of_ragged_clients_below_a_tenth():
  counts = dirichlet()
  chunk = largest_chunk(counts, 100, 50)
  assert chunk > 1
  assert expected_overhead(counts, 100, chunk, 50) < 0.1
  assert expected_overhead(counts, 100, chunk + 1, 50) >= 0.1
  assert expected_overhead(counts, 100, 100, 50) > 0.5  # all at once
  assert largest_chunk(np.full(100, 500), 10, 50) == 10  # of equal sizes


def test_the_overhead_is_logged_where_several_clients_run_at_a_time(capsys):
  def limit(chunk):
    experiment = make_experiment(
      partition='dirichlet',
      dirichlet_beta=0.1,
      num_clients=20,
      clients_per_chunk=chunk,
    )
    return limit_chunk(experiment, experiment.stages[0]), experiment

  assert limit('auto')[0] == 1
  assert not capsys.readouterr().out
  assert limit(3)[0] == 3
  assert '3 clients at a time: padding overhead ' in capsys.readouterr().out
  with compiling_for('gpu'):
    most, experiment = limit('auto')
  counts = np.asarray(experiment.train.count)
  assert most == largest_chunk(counts, experiment.cohort_size, 8)
