"""The forecast of memory against what the compiled programs then take."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from small_runs import make_experiment, make_settings

from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.federated import host_offload, rounds
from fedjax_pfl.federated.cohort import gather
from fedjax_pfl.federated.placement import OnHost
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import limit_chunk

pytestmark = pytest.mark.usefixtures('quick_compiler')
RELEASED = {'protocol': 'released'}


def used(experiment, chunk):
  """Return the bytes of the compiled round; images of the tests are beside."""
  (stage,), data = experiment.stages, experiment.train
  key, size = jax.random.key(0), experiment.cohort_size
  ids = jnp.arange(size)
  if experiment.settings.system.clients_placement == 'host':
    server, clients = OnHost().begin(stage, data, key)
    lowered = host_offload.compiled_round.lower(
      *(stage.algorithm, chunk, data.index.shape, server),
      *(gather(clients, np.arange(size), data), ids, data.x, data.y, key),
    )
  else:
    server, clients = rounds.begin(stage, data, key)
    rounds_fn = rounds.make_rounds(
      rounds.make_round(stage.algorithm, clients_per_chunk=chunk, mesh=None)
    )
    lowered = rounds_fn.lower(server, clients, ids[None], data, key)
  return memory_estimate.program_bytes(lowered.compile())


@pytest.mark.long
@pytest.mark.parametrize(
  ('placement', 'chunk'),
  [('device', 1), ('host', 4)],
)
def test_the_estimate_is_within_a_fifth_of_the_program(placement, chunk):
  experiment = make_experiment(
    algorithm='ditto',
    num_clients=40,
    max_train_examples=800,
    clients_placement=placement,
    clients_per_chunk=chunk,
    views=('initial',),
  )
  ((name, memory),) = memory_estimate.forecasts(experiment)
  test = experiment.test
  beside = test.x.nbytes + test.y.nbytes
  if placement == 'device':
    beside += test.index.nbytes + test.count.nbytes
  assert name == 'ditto'
  assert memory.round - beside == pytest.approx(
    used(experiment, chunk), rel=0.2
  )
  assert (memory.host > 0) == (placement == 'host')
  assert memory.evaluation > 0


def test_the_chunk_is_that_of_the_run(monkeypatch):
  """On a GPU auto takes fewer clients than fit, if their sizes differ."""
  monkeypatch.setattr(memory_estimate, '_evaluation', lambda *args: 0)
  unlike = {'partition': 'dirichlet', 'dirichlet_beta': 0.1, 'num_clients': 20}
  changes = {**unlike, 'client_fraction': 0.5, 'batch_size': 5}
  changes['dirichlet_min_size'] = 1
  auto = make_experiment(**changes)
  with compiling_for('gpu'):
    chunk = limit_chunk(auto, auto.stages[0])
    assert chunk < auto.cohort_size
    settings = parse_config(make_settings(**changes, clients_per_chunk=chunk))
    ((_, forecast),), ((_, own),) = (
      memory_estimate.forecasts(one)
      for one in (auto, auto._replace(settings=settings))
    )
  assert forecast.work == own.work


@pytest.mark.parametrize(
  ('settings', 'room', 'words'),
  [
    ({'algorithm': 'ditto'}, 'device', 'clients_placement=host'),
    (
      {'algorithm': 'lg_fedavg', 'hp': RELEASED, 'views': ('initial',)},
      'host',
      'GiB of the host',
    ),
  ],
)
def test_what_memory_cannot_hold_is_a_sentence(settings, room, words, tmp_path):
  rooms = {'device': 2**40, 'host': 2**40} | {room: 10_000}
  rooms = {f'room_on_{name}': lambda n=n: n for name, n in rooms.items()}
  experiment = make_experiment(**settings)
  with mock.patch.multiple(memory_estimate, **rooms):
    message = refused(train, experiment, tmp_path / 'run')
  assert message.startswith('memory: got ') and words in message
  assert not (tmp_path / 'run').exists()


def test_what_is_kept_of_best_rounds_is_counted():
  """A whole model a client, three times; or the states, twice."""
  experiment = make_experiment(
    algorithm='lg_fedavg', hp=RELEASED, views=('initial',)
  )
  shapes = jax.eval_shape(experiment.task.init, jax.random.key(0))
  model = sum(4 * leaf.size for leaf in jax.tree.leaves(shapes))
  first, last = memory_estimate.forecasts(experiment)
  assert first[1].best == 0 and last[1].best == 3 * 10 * model
  settings = {'algorithm': 'ditto', 'views': ('initial', 'personal')}
  chosen = make_experiment(**settings, validation_fraction=0.2)
  ((_, memory),) = memory_estimate.forecasts(chosen)
  assert memory.best == 2 * (memory.server + memory.clients) > 0
