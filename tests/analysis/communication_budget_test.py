"""Bytes of a config in terms of rounds of FedAvg."""

import pytest

from configs import digits
from fedjax_pfl.analysis.communication_budget import (
  as_text,
  communication_budget,
)
from fedjax_pfl.settings import parse_config


def budget(method):
  return communication_budget(parse_config(digits.get_config(method).to_dict()))


def test_fedavg_sends_as_much_as_fedavg():
  (stage,), rounds = budget('fedavg')
  # Besides the model, a client receives the round: a few bytes.
  assert rounds == pytest.approx(stage.rounds, rel=1e-4)
  assert 0 <= stage.sizes.down - stage.sizes.up < 10
  assert f'{rounds:,.1f} rounds of FedAvg' in as_text([stage], rounds)


def test_a_client_of_fedbabu_uploads_less_than_the_model():
  (stage,), rounds = budget('fedbabu')
  assert stage.sizes.up < stage.sizes.down
  assert 0 < rounds < stage.rounds
