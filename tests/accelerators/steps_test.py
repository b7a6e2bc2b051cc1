"""The steps of an epoch that a forecast counts, against those of a round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  COHORT,
  COUNTS,
  KEY,
  TRAIN,
  build,
  every_method,
  make_data,
  play,
)

from configs import common
from experiments.accelerators import plan, programs
from experiments.accelerators.steps import steps_of_fits
from fedjax_pfl.federated.rounds import begin

pytestmark = pytest.mark.usefixtures('quick_compiler')
# What num_steps counts for each step of a loop of `epochs`: two gradients, the
# steps of a second fit, those of one more epoch.
COUNTED = {'apfl': 2, 'ditto': 2, 'fedrep': (TRAIN.epochs + 1) / TRAIN.epochs}
BATCHES = np.array([2, 1, 0, 1, 3, 2, 1])  # of COUNTS


def steps_of(stage, data):
  """Return the steps of an epoch of the clients of COHORT, forecast."""
  states = begin(stage, data, KEY(1))
  arguments = (*states, jnp.array(COHORT), data, KEY(2))
  return steps_of_fits(stage.algorithm, arguments, np.array(COUNTS))


@every_method(step=9)
def test_steps_of_an_epoch(name):
  (stage, *_), data = build(name), make_data()
  _, _, (metrics, *_) = play([stage], data, rounds=1)
  steps = steps_of(stage, data)[np.array(COHORT)]
  np.testing.assert_array_equal(
    metrics['num_steps'], COUNTED.get(name, 1) * TRAIN.epochs * steps
  )


@pytest.mark.parametrize(
  ('name', 'hp', 'steps'),
  [
    ('fedavg', {}, BATCHES),
    ('pfedme', {'inner_steps': 3}, 3 * BATCHES),
    ('apfl', {'order': 'sequential'}, 2 * BATCHES),
    # J = floor(batches / 2 epochs) + 1, of two steps; none without a batch.
    ('per_fedavg', {}, [4, 2, 0, 2, 4, 4, 2]),
    ('per_fedavg', {'second_order': True}, [2, 1, 0, 1, 2, 2, 1]),
  ],
)
def test_a_method_has_steps_of_its_own(name, hp, steps):
  (stage,) = build(name, **hp)
  assert steps_of(stage, make_data()).tolist() == [*steps]


def test_a_method_without_a_fit_has_no_steps():
  (stage,) = build('fedavg')
  algorithm = stage.algorithm._replace(
    local_update=lambda down, client, data, rng: (client, down, {})
  )
  assert steps_of(stage._replace(algorithm=algorithm), make_data()) is None


def test_the_programs_of_a_run_have_the_steps_of_the_method():
  own = plan.make_plan(common.load('digits:pfedme', quick=True).to_dict())
  first, *_ = programs.make_programs(own, jax.devices()[:1])
  lengths = dict(first.lengths)
  assert lengths['local_training.py'] == 5 * lengths[''] > 0
