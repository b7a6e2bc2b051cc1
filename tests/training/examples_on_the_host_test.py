"""An accelerator gets the examples of cohorts alone; the bits are the same.

The path of a TPU, on a CPU.
"""

import threading

import jax
import numpy as np
import pytest
from helpers import assert_same_bits, refused
from small_runs import assert_same_run, make_experiment, with_algorithm

from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data.client_data import ImagePool, stack_clients, with_own_pool
from fedjax_pfl.data.clients_folder import write_clients
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.federated import host_offload
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')
SIZES = [1, 5, 3, 2] * 6  # of 24 clients; tests are one more
POOLS = sum(SIZES), sum(SIZES) + len(SIZES)
BOTH = {'views': ('initial', 'personal')}
LONG = pytest.mark.long
CASES = {
  # Calls of two rounds; client 0 is in several blocks of an evaluation.
  'ditto': BOTH | {'log_every': 2, 'eval_views': ('initial',)},
  'fedavg': {'server_data_fraction': 0.1},
}
OTHERS = {
  'scaffold': {'log_every': 2},
  'cfl': {},
  'lg_fedavg': {'hp': {'protocol': 'released'}, 'eval_views': ('initial',)},
  'fedper': {'validation_fraction': 0.3, 'select': 'validation'},
  'fedbabu': {'adapt_on': 'test_half', 'views': ('finetuned',)},
  'feddyn': {'unseen_clients': 3},
}
# Stages that make their own data have those of all clients.
WHOLE = {
  'fedconcat': {'hp': {'clusters': 2}},
  'fedprox': {'attack': 'bad_pfl', 'attackers': 0.2},
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  rng = np.random.default_rng(0)

  def client(size):
    x = rng.integers(0, 256, (size, 8, 8, 1)).astype(np.uint8)
    return x, rng.integers(0, 3, size)

  path = tmp_path_factory.mktemp('examples') / 'clients'
  write_clients(path, [(*client(n), *client(n + 1)) for n in SIZES])
  return path


def make(folder, place, algorithm='fedavg', **changes):
  """Return the experiment of files, with clients there."""
  few = {'rounds': 4, 'log_every': 1, 'eval_every': 2, 'checkpoint_every': 2}
  few |= {'eval_views': (), 'views': ('initial',), 'save_clients': (0,)}
  few |= {'client_fraction': 0.125, 'devices': 1, 'clients_placement': place}
  few |= {'dataset': 'clients', 'data_dir': str(folder), 'num_clients': 0}
  return make_experiment(
    **{**few, 'partition': 'natural', 'algorithm': algorithm, **changes}
  )


def begun_with_examples(experiment):
  """Return the experiment whose states begin with a client's first example."""
  init = experiment.stages[-1].algorithm.init_client

  def init_client(server, data, rng):
    pixels, label = data.x[data.index[0]], data.y[data.index[0]]
    more = pixels.astype(float).mean() / 256 + label  # exact
    return jax.tree.map(lambda leaf: leaf + more, init(server, data, rng))

  return with_algorithm(experiment, init_client=init_client)


@pytest.mark.parametrize(
  'name', [*CASES, *(pytest.param(n, marks=LONG) for n in (*OTHERS, *WHOLE))]
)
def test_the_bits_are_those_of_examples_on_the_device(
  name, folder, tmp_path, monkeypatch
):
  calls, ahead, changes = [], [], (CASES | OTHERS | WHOLE)[name]

  def noted(data):
    """Return the own pool; no array on the device has the rows of all."""
    calls.append(isinstance(data.x, np.memmap))
    ahead.append(threading.current_thread() is not threading.main_thread())
    if name not in WHOLE:
      new = [leaf for leaf in jax.live_arrays() if id(leaf) not in others]
      assert not {leaf.shape[:1] for leaf in new} & {(n,) for n in POOLS}
    return with_own_pool(data)

  before = jax.live_arrays()  # of other tests
  others = {*map(id, before)}
  for module in (host_offload, evaluate):
    monkeypatch.setattr(module, 'with_own_pool', noted)
  states, on_disk = {}, name in ('ditto', 'fedavg', 'scaffold', 'feddyn')
  with compiling_for('tpu'):
    for place in ['host', *['disk'] * on_disk, 'device']:
      calls.clear()
      ahead.clear()
      experiment = make(folder, place, name, **changes)
      assert isinstance(experiment.train.x, ImagePool) == (place == 'device')
      if name == 'ditto':
        experiment = begun_with_examples(experiment)
      train(experiment, tmp_path / place)
      assert any(calls) == (place != 'device')
      if place != 'device' and name not in WHOLE:  # one in each call of rounds
        assert sum(ahead) == experiment.rounds / changes.get('log_every', 1)
      server, clients = load_states(experiment, tmp_path / place, pytest.fail)
      states[place] = server, jax.tree.map(np.asarray, clients)
      del experiment
  for place, got in states.items():
    assert_same_run(tmp_path / place, tmp_path / 'device')
    assert_same_bits(got, states['device'])


def test_auto_moves_no_examples_that_a_device_cannot_hold(folder, monkeypatch):
  """And the forecast has two cohorts on the device, and files on disk."""
  monkeypatch.setattr(memory_estimate, 'room_on_host', lambda: 2**40)
  room = 64 * sum(POOLS)  # the images: less than a run takes
  monkeypatch.setattr(memory_estimate, 'room_on_device', lambda: room)
  live = {leaf.shape for leaf in jax.live_arrays()}
  with compiling_for('tpu'):
    experiment = make(folder, 'auto')
    assert isinstance(experiment.train.x, np.memmap)
    message = refused(make, folder, 'device')
    assert message.startswith('memory: got ') and 'placement=host' in message
    assert {leaf.shape for leaf in jax.live_arrays()} <= live
    ((_, memory),) = memory_estimate.forecasts(experiment)
    of_label = 4 * sum(POOLS)
    each, size = 64 + 4, experiment.cohort_size
    assert memory.images == 2 * size * max(SIZES) * each
    rows = sum(
      4 * (data.index.size + data.count.size)
      for data in experiment.data.splits.values()
    )
    assert (memory.host, memory.disk) == (rows + of_label, room)
    assert memory.evaluation > 10 * (max(SIZES) + max(SIZES) + 1) * each
    monkeypatch.setattr(memory_estimate, 'room_on_device', lambda: 2**40)
    moved = make(folder, 'auto').train
  assert isinstance(moved.x, ImagePool) and isinstance(moved.index, jax.Array)


def test_a_cohort_has_its_own_rows():
  """In one shape, whoever is in it."""
  x = np.arange(40, dtype=np.uint8).reshape(10, 2, 2)
  rows = [np.array([4, 2]), np.array([2]), np.array([9, 0, 1])]
  with compiling_for('gpu'):
    data = stack_clients((x, np.arange(10)), rows, 'host')
  for ids in ([0, 1], [2, 0], [1, 1]):
    cohort = data._replace(index=data.index[ids])
    own = with_own_pool(cohort)
    assert own.x.shape == (6, 2, 2)
    np.testing.assert_array_equal(own.x[own.index], x[cohort.index])
    np.testing.assert_array_equal(own.y[own.index], cohort.index)
