"""The forecast of memory against what the compiled programs then take."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_devices
from helpers import refused
from small_runs import make_experiment

from experiments.benchmarks.programs import program_bytes
from fedjax_pfl.core import trees
from fedjax_pfl.federated import host_offload, rounds
from fedjax_pfl.federated.cohort import gather
from fedjax_pfl.federated.placement import OnHost
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')
RELEASED = {'protocol': 'released'}


def used(experiment, chunk):
  """Return the bytes of the compiled round; images of the tests are beside."""
  (stage,), data = experiment.stages, experiment.train
  key, size = jax.random.key(0), experiment.cohort_size
  ids = jnp.arange(size)
  if experiment.settings.system.clients_placement == 'host':
    server, clients = OnHost().begin(stage, data, key)
    round_fn = host_offload.compile_round(stage.algorithm, None, chunk)
    lowered = round_fn.lower(
      *(data.index.shape, server),
      *(gather(clients, np.arange(size), data), ids, data.x, data.y, key),
    )
  else:
    server, clients = rounds.begin(stage, data, key)
    make = lambda numbers: stage.algorithm
    rounds_fn = jax.jit(rounds.rounds_fn(make, chunk, None, None))
    lowered = rounds_fn.lower({}, server, clients, ids, data, key)
  return program_bytes(lowered.compile())


@pytest.mark.long
@pytest.mark.parametrize(('placement', 'chunk'), [('device', 1), ('host', 4)])
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
  else:  # the states of the next cohort, before and after those of the round
    states, data = partial(rounds.begin, *experiment.stages), experiment.train
    _, clients = jax.eval_shape(states, data, jax.random.key(0))
    beside += 2 * trees.num_bytes(clients) * experiment.cohort_size / 40
  assert name == 'ditto'
  assert memory.round - beside == pytest.approx(
    used(experiment, chunk), rel=0.2
  )
  assert (memory.host > 0) == (placement == 'host')
  assert memory.evaluation > 0


@pytest.mark.long
@pytest.mark.parametrize('model_devices', [2, 4])
def test_the_estimate_of_a_divided_model(model_devices):
  name = 'on_devices.memory_of_divided'
  estimate, of_program = simulated_devices.call(4, name, model_devices)
  assert estimate == pytest.approx(of_program, rel=0.2)


@pytest.mark.parametrize(
  ('room', 'words'),
  [('device', 'clients_placement=host'), ('host', 'GiB of the host')],
)
def test_what_memory_cannot_hold_is_a_sentence(room, words, tmp_path):
  """LG-FedAvg as released keeps models of best rounds on the host."""
  settings = {'algorithm': 'lg_fedavg', 'hp': RELEASED, 'views': ('initial',)}
  experiment = make_experiment(**settings)
  rooms = {'device': 2**40, 'host': 2**40} | {room: 10_000}
  rooms = {f'room_on_{name}': lambda n=n: n for name, n in rooms.items()}
  with mock.patch.multiple(memory_estimate, **rooms):
    message = refused(train, experiment, tmp_path / 'run')
  assert message.startswith('memory: got ') and words in message
  assert not (tmp_path / 'run').exists()


def test_a_cpu_has_one_memory_for_devices_and_host():
  room = memory_estimate.room_on_host()
  each = dict.fromkeys(memory_estimate.Memory._fields[:7], 0)
  half = memory_estimate.Memory(**{**each, 'clients': room, 'best': room // 2})
  message = refused(memory_estimate.check_fits, half, make_experiment())
  assert message.startswith(f"memory: got '{1.5 * room / 2**30:.2f} GiB")
