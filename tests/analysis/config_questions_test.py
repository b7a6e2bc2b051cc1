"""Questions to a config, which train nothing: bytes."""

import pytest

from configs import digits
from fedjax_pfl.analysis.communication_budget import (
  as_text,
  communication_budget,
)
from fedjax_pfl.settings import parse_config


def settings_of(method, **changes):
  return parse_config(digits.get_config(method).to_dict() | changes)


def test_fedavg_sends_as_much_as_fedavg_and_fedbabu_less():
  (stage,), rounds = communication_budget(settings_of('fedavg'))
  # Besides the model, a client receives the round: a few bytes.
  assert rounds == pytest.approx(stage.rounds, rel=1e-4)
  assert 0 <= stage.sizes.down - stage.sizes.up < 10
  assert f'{rounds:,.1f} rounds of FedAvg' in as_text([stage], rounds)
  buffers = {'client_speeds': 'lognormal', 'buffer_size': 1}
  _, fewer = communication_budget(settings_of('fedavg', **buffers))
  assert fewer == pytest.approx(rounds / 5, rel=1e-4)  # 5 of 20 in a round
  # Nobody is drawn less than once, but by chance; who drops out sends nothing.
  lost = {'sampling': 'poisson', 'client_fraction': 0.01, 'dropout_rate': 0.5}
  (stage,), fewer = communication_budget(settings_of('fedavg', **lost))
  assert fewer == pytest.approx(0.75 * rounds, rel=1e-4)
  assert stage.client_fraction == 0.01
  (stage,), rounds = communication_budget(settings_of('fedbabu'))
  assert stage.sizes.up < stage.sizes.down
  assert 0 < rounds < stage.rounds
