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
  assert rounds == pytest.approx(stage.rounds)
  assert stage.traffic.up == stage.traffic.down
  assert f'{rounds:,.1f} rounds of FedAvg' in as_text([stage], rounds)


def test_a_client_of_fedbabu_uploads_less_than_the_model():
  (stage,), rounds = budget('fedbabu')
  assert stage.traffic.up < stage.traffic.down
  assert 0 < rounds < stage.rounds
