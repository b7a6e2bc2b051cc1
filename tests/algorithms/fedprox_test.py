"""FedProx: what its cases do not say."""

import jax
import pytest
from helpers import (
  KEY,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  make_data,
  make_task,
  play,
)

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.losses import sum_squares

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.mark.long
@pytest.mark.usefixtures('float64')
def test_body_without_a_term_is_fedbabu():
  data = make_data()
  want, _, _ = play(build('fedbabu'), data)
  got, _, _ = play(build('fedprox', mu=0.0, trainable='body'), data)
  assert_same_bits(got.params['head'], want.params['head'])
  assert_close(got.params['body'], want.params['body'])


@pytest.mark.usefixtures('float64')
def test_the_view_local_update_is_trained_with_the_term():
  """FedProx's; fine-tuning, and FedAvg's by either name, are without one."""
  data, params = client_of(make_data(), 4), make_task().init(KEY(7))

  def models(name, **hp):
    algorithm = build(name, **hp)[0].algorithm
    server = algorithm.init_server(KEY(0))._replace(params=params)

    @jax.jit
    def two(server):
      views = algorithm.personalize(server, (), data, KEY(1))
      return views['finetuned'], views['local_update']

    return two(server)

  free, same = models('fedavg')
  assert_same_bits(free, same)
  finetuned, updated = models('fedprox', mu=0.5, distance='norm')
  assert_close(finetuned, free)
  far, near = (sum_squares(model, params) for model in (free, updated))
  assert 0 < near < 0.9 * far


def test_unknown_distance_is_refused():
  with pytest.raises(BadInput, match=r"'squares'.*did you mean squared\?"):
    build('fedprox', distance='squares')


def test_a_negative_mu_is_refused():
  with pytest.raises(BadInput, match=r'hp\.mu: got -0\.1.*a sign'):
    build('fedprox', mu=-0.1)
