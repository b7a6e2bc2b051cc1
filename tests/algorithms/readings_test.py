"""Readings of a method that are not its default, and so not discovered."""

import jax
import numpy as np
import pytest
from helpers import (
  COHORT,
  COUNTS,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  make_data,
  pad,
  play,
)

from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import init_states

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
WIDE = pad(DATA, 2 * max(COUNTS), row=-1)  # padding shows the poisoned row
RELEASED = {'protocol': 'released'}
FIRST_CODE = {
  'protocol': 'first_code',
  'phase_start': 0.0,
  'mixing': 'layer',
  'twice': 'all',
  'local_init': 'shared',
  'pairing': 'stale',
}
READINGS = {
  'ditto, released': ('ditto', RELEASED),
  'ditto, local anchor': ('ditto', {**RELEASED, 'anchor': 'local'}),
  'per_fedavg, second order': ('per_fedavg', {'second_order': True}),
  'superfed, first code': ('superfed', FIRST_CODE),
}


@pytest.mark.parametrize(
  'reading',
  [
    pytest.param(name, marks=[pytest.mark.long] * (name != 'ditto, released'))
    for name in READINGS
  ],
)
def test_padding_and_chunks_do_not_change_other_readings(reading):
  """Clients outside the cohort keep their bits, and all values are finite."""
  name, hp = READINGS[reading]
  stages = build(name, **hp)
  server, clients, history = play(stages, DATA, clients_per_chunk=1)
  for leaf in jax.tree.leaves((server, clients, history)):
    assert np.isfinite(leaf).all()
  wide_server, wide_clients, _ = play(
    stages, WIDE, clients_per_chunk=len(COHORT)
  )
  assert_close((wide_server, wide_clients), (server, clients))
  first = init_states(stages[0].algorithm, DATA, KEY(1))
  others = np.setdiff1d(np.arange(len(COUNTS)), COHORT)
  assert_same_bits(
    trees.gather(clients, others), trees.gather(first[1], others)
  )
  moved = [
    (one != other).any()
    for one, other in zip(
      jax.tree.leaves(first[0]), jax.tree.leaves(server), strict=True
    )
  ]
  assert sum(moved) > 1  # the clock is not alone


def test_ditto_as_released_is_fedavg_without_its_pull():
  """At the first rate, which never falls; also where an anchor is trained."""
  name, hp = READINGS['ditto, local anchor']
  server, _, _ = play(build(name, lam=0.0, **hp), DATA, clients_per_chunk=1)
  first = TRAIN.learning_rate(0)
  train = TRAIN._replace(learning_rate=lambda clock: first)
  want, _, _ = play(build('fedavg', train=train), DATA, clients_per_chunk=1)
  assert_close(server.params, want.params)
