"""What clients side by side wait for, and the chunk that follows from it."""

from unittest import mock

import jax
import numpy as np
import pytest
from small_runs import make_experiment

from fedjax_pfl.data import partition
from fedjax_pfl.federated.padding_overhead import (
  expected_waste,
  wasted_steps,
  widest_chunk,
)
from fedjax_pfl.training.drivers.chunk_limit import limit_chunk

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
  ('counts', 'chunk', 'waste'),
  [
    ((40, 10, 20), 1, 0),
    ((40, 10, 20), 3, 1 - 7 / 12),
    ((40, 10, 20), 2, 1 - 7 / 8),  # 1 and 2 steps, then the largest alone
    ((11, 20, 19), 3, 0),  # a partial batch is a step
    ((0, 0), 2, 0),
    ((0, 10), 2, 0.5),
  ],
)
def test_by_hand(counts, chunk, waste):
  assert wasted_steps(np.array(counts), chunk, 10) == pytest.approx(waste)


def test_ragged_clients_waste_less_than_a_tenth():
  counts = dirichlet()
  chunk = widest_chunk(counts, 100, 50)
  assert chunk > 1
  assert expected_waste(counts, 100, chunk, 50) < 0.1
  assert expected_waste(counts, 100, chunk + 1, 50) >= 0.1
  assert expected_waste(counts, 100, 100, 50) > 0.5  # all at once
  assert widest_chunk(np.full(100, 500), 10, 50) == 10  # equal ones wait not


def test_the_waste_is_said_where_clients_run_side_by_side(capsys):
  experiment = make_experiment(
    partition='dirichlet', dirichlet_beta=0.1, num_clients=20
  )
  (stage,) = experiment.stages
  assert limit_chunk(experiment, stage, 'auto') == 1
  assert not capsys.readouterr().out
  assert limit_chunk(experiment, stage, 3) == 3
  assert '3 clients side by side: ' in capsys.readouterr().out
  with mock.patch.object(jax, 'default_backend', return_value='gpu'):
    most = limit_chunk(experiment, stage, 'auto')
  counts = np.asarray(experiment.train.count)
  assert most == widest_chunk(counts, experiment.cohort_size, 8)
