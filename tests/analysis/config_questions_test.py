"""Questions to a config, which train nothing: bytes, and label counts."""

import pytest

from configs import digits
from fedjax_pfl.analysis.communication_budget import (
  as_text,
  communication_budget,
)
from fedjax_pfl.analysis.partition_counts import label_of, partition_counts
from fedjax_pfl.settings import parse_config


def settings_of(method):
  return parse_config(digits.get_config(method).to_dict())


def test_fedavg_sends_as_much_as_fedavg():
  (stage,), rounds = communication_budget(settings_of('fedavg'))
  # Besides the model, a client receives the round: a few bytes.
  assert rounds == pytest.approx(stage.rounds, rel=1e-4)
  assert 0 <= stage.sizes.down - stage.sizes.up < 10
  assert f'{rounds:,.1f} rounds of FedAvg' in as_text([stage], rounds)


def test_a_client_of_fedbabu_uploads_less_than_the_model():
  (stage,), rounds = communication_budget(settings_of('fedbabu'))
  assert stage.sizes.up < stage.sizes.down
  assert 0 < rounds < stage.rounds


def test_every_example_is_counted_once():
  part = partition_counts(settings_of('fedbabu'), 'a', lambda text: None)
  assert part.label == 'a'
  assert part.train.shape == part.test.shape == (20, 10)
  assert (part.train.sum(), part.test.sum()) == (1442, 355)
  assert ((part.train > 0).sum(1) <= 2).all()  # two shards each


def test_a_label_has_the_partition_and_the_changes():
  settings = parse_config({'partition': 'dirichlet'})
  changes = {'dirichlet_beta': '0.5'}
  assert label_of(settings, changes) == 'dirichlet, dirichlet_beta=0.5'
  changes = {'partition': 'dirichlet'}
  assert label_of(settings, changes) == 'partition=dirichlet'
