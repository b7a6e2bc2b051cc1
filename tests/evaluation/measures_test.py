"""Measures of who gains, by hand."""

import numpy as np
import pytest

import fedjax_pfl as pfl
from fedjax_pfl.evaluation.measures import negative_transfer
from fedjax_pfl.evaluation.own_metrics import accuracy_by_shots

NAN = np.nan


def test_negative_transfer_counts_clients_with_both_numbers():
  with_others = np.array([90.0, 50.0, NAN, 70.0, 60.0])
  alone = np.array([80.0, 60.0, 10.0, 70.0, NAN])
  assert negative_transfer(with_others, alone) == pytest.approx(100 / 3)
  assert np.isnan(negative_transfer(alone[4:], alone[4:]))


def test_rare_classes_are_counted_by_their_training_examples():
  metrics = accuracy_by_shots([500, 101, 100, 20, 19, 0])
  labels = np.array([0, 0, 1, 2, 2, 3, 4, 4, 4])
  predicted = np.array([0, 1, 1, 2, 0, 0, 4, 4, 0])
  logits, mask = np.eye(6)[predicted], np.ones(9)
  mask[-1] = 0  # padding
  found = {name: one(logits, labels, mask) for name, one in metrics.items()}
  assert found == {'many': 100 * 2 / 3, 'medium': 100 / 3, 'few': 100.0}
  of_few = metrics['few'](logits[:6], labels[:6], mask[:6])
  assert np.isnan(of_few)  # this client has none of these
  assert [*accuracy_by_shots([500, 50])] == ['many', 'medium']


def test_a_run_with_a_long_tail_measures_them():
  """Metrics of a run reach its result: own_code_test.py."""
  config = {'dataset': 'digits', 'model': 'convnet3', 'num_clients': 4}
  one = pfl.build_experiment({**config, 'imbalance_factor': 20})
  assert {*one.metrics} == {'many', 'medium', 'few'}
  assert not pfl.build_experiment(config).metrics
