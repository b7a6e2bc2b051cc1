"""A mesh does not change results."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_devices
from helpers import ALGORITHMS, KEY, assert_same_bits, make_task, refused
from jax.sharding import Mesh

from fedjax_pfl.federated import sharding
from fedjax_pfl.federated.client_map import (
  deal_as_given,
  map_on_mesh,
  write_on_mesh,
)
from fedjax_pfl.federated.cohort import Change, Cohort
from fedjax_pfl.federated.model_axis import check_table
from fedjax_pfl.training.outline import outline

SINGLE = Mesh(np.array(jax.devices()[:1]), (sharding.AXIS,))


def test_copies_are_kept_as_long_as_their_arrays_live():
  gc.freeze()  # what was there: its collection takes seconds
  calls = sharding.replicate(
    lambda x, key, weak: (x + weak, jax.random.fold_in(key, 1)), SINGLE
  )
  before, x, key = len(jax.live_arrays()), jnp.zeros(3), KEY(0)
  counts = []
  for _ in range(5):
    x, key = calls(x, key, jnp.asarray(1))
    counts.append(len(jax.live_arrays()))
  assert len(set(counts[1:])) == 1
  assert x.tolist() == [5, 5, 5] and x.sharding.device_set == {jax.devices()[0]}
  del x, key
  gc.collect()
  gc.unfreeze()
  assert len(jax.live_arrays()) <= before


def test_options_are_those_of_the_outermost_program(monkeypatch):
  options = {'xla_backend_optimization_level': 0}
  monkeypatch.setattr(sharding, 'compiler_options', lambda: options)
  call = sharding.replicate(lambda x: x + 1, None)
  assert call(1) == 2 and jax.jit(call)(1) == 2  # jit refuses inner ones
  options['no_such_option'] = 1
  with pytest.raises(jax.errors.JaxRuntimeError, match='no_such_option'):
    sharding.replicate(lambda x: x + 2, None)(1)


def test_more_devices_than_there_are():
  message = refused(sharding.make_mesh, 2)
  assert message.startswith('devices: got 2, expected a number of devices')
  for part in ('Choices: 0, 1', 'on a CPU more than it has cores'):
    assert part in message


@pytest.mark.parametrize(
  ('config', 'expected'),
  [
    (
      {'model_devices': 2},
      'that divides the 1 devices of the run. Choices: 1.',
    ),
    (
      {'model_devices': 2, 'devices': 2},
      'devices: got 2, expected a number of',
    ),
    ({'model_devices': 2, 'debug': True}, 'with debug: its loop runs on one'),
    (
      {'model_devices': 2, 'clients_placement': 'host'},
      'expected 1 with clients_placement: one device has a cohort',
    ),
  ],
)
def test_devices_that_divide_no_model(config, expected):
  assert expected in refused(outline, {'dataset': 'digits', **config})


def test_devices_that_divide_no_parameter():
  message = refused(check_table, make_task(hidden=6), 4)
  assert (
    "names: {'*/kernel': -1, '*/embedding': -1}. Choices: 1, 2, 3" in message
  )


def test_a_mesh_of_one_device_returns_what_none_returns():
  """For leaves of every type and shape; -0.0 stays what it is.

  Rows that are written replace those of their clients.
  """
  clients = {
    'float': jnp.linspace(-1, 1, 8).reshape(4, 2).at[1, 0].set(-0.0),
    'int': jnp.arange(4),
    'bool': jnp.array([True, False, True, False]),
    'bfloat16': jnp.arange(12, dtype=jnp.bfloat16).reshape(4, 1, 3),
    'nan': jnp.full((4,), jnp.nan),
  }
  ids = jnp.array([3, 0, 1])

  def fn(shared):
    def of_one(row):
      client, number = row.clients, row.count
      told = {**client, 'sum': shared + number + client['int']}
      return {**client, 'int': client['int'] + 10}, client['float'], told

    return of_one

  @jax.jit
  def mapped(shared, clients, numbers):
    dealt, rows = deal_as_given(ids, 1), Cohort((), None, numbers, ids)
    new, *others = map_on_mesh(fn, shared, clients, dealt, rows, 1, SINGLE)
    return write_on_mesh(SINGLE, clients, Change(ids, new)), *others

  new, uploads, told = mapped(jnp.array(7), clients, jnp.array([5, 6, 7]))
  rows = jax.tree.map(lambda leaf: leaf[ids], clients)
  assert_same_bits(told, {**rows, 'sum': jnp.array([15, 13, 15])})
  assert_same_bits(uploads, rows['float'])
  assert_same_bits(new, {**clients, 'int': jnp.array([10, 11, 2, 13])})


# ---- eight simulated devices


def test_results_on_devices_equal_those_on_one():
  """Its clients count their visits: they are scattered to the right rows."""
  words = ['5 on 8', '7 on 2 by 3', '5 on 2 by 2,0.5']
  words = [f'counting,{word}' for word in words]
  found = simulated_devices.call(8, 'on_devices.differences', words)
  assert found == dict.fromkeys([*words, 'other sizes'], 0.0)


def test_a_divided_model_is_the_same_as_on_one_device():
  """In one group of four devices, and in two groups of two; in float64."""
  words = ['fedavg,5 on 1 x 4', 'ditto,6 on 2 x 2 by 2']
  words += ['scaffold,5 on 2 x 2', 'lora,5 on 1 x 4']
  name = 'on_devices.differences'
  found = simulated_devices.call(4, name, words, True)
  assert {*found} >= {*words} and max(found.values()) < 1e-12, found


@pytest.mark.long
def test_every_method_is_the_same_on_eight_devices():
  """In float64, where a real error differs by more than 1e-6."""
  words = [f'counting,{case}' for case in ('7 on 8', '6 on 3')]
  words += [f'{name},5 on 8' for name in ALGORITHMS]
  words += [f'{name},5 on 8,0.5' for name in ('fedavg', 'fedper', 'fedamp')]
  words += ['fedper,5 on 2 by 2,0.5,topk', 'scaffold,5 on 8,0,drive']
  words += ['fedavg,5 on 2 by 2,0.2,,median', 'fedper,7 on 8,0,,multi_krum']
  words += ['fedavg,5 on 8,late', 'fedper,7 on 2 by 3,late']
  words += ['fedfomo,7 on 2 by 3']
  words += [f'{name},5 on 2 x 2' for name in (*ALGORITHMS, 'lora')]
  words += ['ditto,5 on 1 x 4', 'scaffold,5 on 1 x 4']
  found = simulated_devices.call(8, 'on_devices.differences', words, True)
  assert {*found} == {*words, 'other sizes'} and max(found.values()) < 1e-12, (
    found
  )
