"""A server's optimiser around any method; its equations are golden cases."""

import jax
import jax.numpy as jnp
import pytest
import small_runs
from helpers import assert_close, build, long, make_data, play, refused

from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.server_optimiser import ServerOptimiser, optimised
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build_checks
from fedjax_pfl.training.build_method import build_stages, peek_shape

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA, MEAN = make_data(), ServerOptimiser('sgd', 1.0, 0.0)


@pytest.mark.parametrize(
  'name', ['scaffold', long('fedper'), long('fedconcat')]
)
def test_a_step_of_one_is_the_mean(name):
  """State beside the model, a part of it, and several stages."""
  stages = build(name)
  server, clients, _ = play(stages, DATA)
  mine, own, _ = play(around(stages, Around(server_optimiser=MEAN)), DATA)
  assert_close((*mine[:-1],), (*server,))
  assert_close(own, clients)
  yogi = Around(server_optimiser=MEAN._replace(name='yogi'))
  moved, _, _ = play(around(stages, yogi), DATA)
  same = jax.tree.map(jnp.array_equal, moved.params, mine.params)
  assert not jax.tree.all(same)


@pytest.mark.parametrize(
  'name', ['fedamp', 'fedfomo', 'fedproto', 'local_only', 'fedopt']
)
def test_a_server_whose_model_never_moves_is_refused(name):
  """Nor can FedOpt's take the steps of another optimiser. On shapes alone."""
  assert f'{name}, whose server has ' in refused(check, name)


@pytest.mark.parametrize('name', ['scaffold', long('fedconcat')])
def test_a_server_whose_model_moves_is_accepted(name):
  check(name)


def check(name):
  changes = {'algorithm': name, 'server_optimizer': 'sgd'}
  settings = parse_config(small_runs.make_settings(**changes))
  stages = build_stages(settings, small_runs.TASK)
  data = shapes_of_clients(peek_shape(settings.data), 10)
  build_checks.check_method(settings, stages, small_runs.TASK, data)


def test_a_server_without_a_model_is_refused():
  (stage,) = build('fedavg')
  server = type('Server', (tuple,), {})
  algorithm: Algorithm = stage.algorithm._replace(
    init_server=lambda rng: server()
  )
  wrapped = optimised(Stage('mine', 1, algorithm), MEAN)
  with pytest.raises(BadInput, match=r'got .sgd with mine'):
    wrapped.algorithm.init_server(None)
