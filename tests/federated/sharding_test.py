"""A mesh does not change results."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_devices
from helpers import ALGORITHMS, KEY, refused
from jax.sharding import Mesh

from fedjax_pfl.federated import sharding

SINGLE = Mesh(np.array(jax.devices()[:1]), (sharding.AXIS,))


def test_copies_are_kept_as_long_as_their_arrays_live():
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
  assert len(jax.live_arrays()) <= before


def test_types_are_promoted_as_without_a_mesh():
  half = jnp.ones(3, jnp.bfloat16)
  weak = jnp.asarray(2.0)
  assert weak.weak_type
  product = sharding.replicate(lambda x, w: x * w, SINGLE)(half, weak)
  assert product.dtype == half.dtype


def test_one_device_is_no_mesh():
  assert sharding.make_mesh() is None and sharding.make_mesh(1) is None
  assert sharding.describe(None) == ''
  assert sharding.describe(SINGLE).startswith('1 devices (cpu): each')


def test_more_devices_than_there_are():
  message = refused(sharding.make_mesh, 2)
  assert message.startswith('devices: got 2, expected a number of devices')
  for part in ('Choices: 0, 1', 'on a CPU more than it has cores'):
    assert part in message


# ---- eight simulated devices


def test_results_on_devices_equal_those_on_one():
  """Its clients count their visits: they are scattered to the right rows."""
  found, failing = simulated_devices.found('on_devices', 8).values()
  assert len(found) == 2 and set(found.values()) == {0.0}, found
  assert len(failing) == 1 and set(failing.values()) == {0.0}, failing


@pytest.mark.long
def test_every_method_is_the_same_on_eight_devices():
  """In float64, where a real error differs by more than 1e-6."""
  words = '--float64', *ALGORITHMS, 'fedavg:0.5', 'fedper:0.5'
  found = simulated_devices.found('on_devices', 8, *words)
  assert {*ALGORITHMS} < {*found}
  for name, cases in found.items():
    assert max(cases.values()) < 1e-12, (name, cases)
