"""Learning rates, and optimisers of local training, or of some steps.

Of some leaves: golden cases (fedbabu, finetune_head), and partial_test.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.client import optimisers
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.mark.parametrize(
  'rounds, first_of_second, first_of_third',
  [
    (2, 1, None),  # floor(K/2) = floor(3K/4) = 1: one drop
    (3, 1, 2),
    (320, 160, 240),
  ],
)
def test_learning_rate_drops(rounds, first_of_second, first_of_third):
  """By rounds, at floor(K/2) and floor(3K/4); to a tenth each time."""
  schedule = optimisers.step_schedule(0.1, rounds)
  want = np.full(rounds, 0.1)
  want[first_of_second or rounds :] = 0.01
  want[first_of_third or rounds :] = 0.001
  got = jax.vmap(schedule)(jnp.arange(320))
  np.testing.assert_allclose(got[:rounds], want, rtol=1e-6)


def test_a_decay_begins_with_the_first_round():
  schedule = optimisers.step_schedule(1.0, 10, (0.5,), 0.9)
  got = [float(schedule(r)) for r in (0, 1, 5)]
  np.testing.assert_allclose(got, [0.9, 0.81, 0.1 * 0.9**6], rtol=1e-6)


WRONG = [
  (LocalTraining, {'optimizer': 'Adam'}, "optimizer: got 'Adam', expected"),
  (LocalTraining, {'aggregation': 'mean'}, "aggregation: got 'mean'"),
  (LocalTraining, {'learning_rate': 0.1}, 'learning_rate: got 0.1, expected'),
  (LocalTraining, {'batch_size': 0}, 'batch_size: got 0, expected a whole'),
  (LocalTraining, {'epochs': np.int64(2), 'momentum': 9}, 'momentum: got 9'),
  (LocalTraining, {'momentum': jnp.ones(())}, 'momentum: got 1.0, expected'),
  (LocalTraining, {'clip_norm': -1.0}, 'clip_norm: got -1.0, expected a num'),
  (Finetuning, {'learning_rate': -1}, 'finetune.learning_rate: got -1'),
  (LocalTraining, {'epochs': 0.5}, 'local_epochs: got 0.5, expected'),
  (Finetuning, {'epochs': 5}, 'finetune.epochs: got 5, expected whole numbers'),
]


@pytest.mark.parametrize(('record', 'bad', 'words'), WRONG)
def test_a_setting_that_is_none_is_refused(record, bad, words):
  assert refused(lambda: record(**bad)).startswith(words)
  assert refused(lambda: record()._replace(**bad)).startswith(words)


def test_drops_are_fractions():
  message = refused(optimisers.step_schedule, 0.1, 8, (4,))
  assert message.startswith('drops: got (4,), expected fractions of all rounds')
  assert optimisers.step_schedule(jnp.float32(0.1), 8, np.array([0.5]))(3) > 0


@pytest.mark.parametrize('name', optimisers.OPTIMISERS)
def test_a_local_optimiser_clips_and_decays(name):
  """One step from p = 2 with g = 3, clipped to 1, decay 0.5, eta = 0.1."""
  train = LocalTraining(optimizer=name, weight_decay=0.5, clip_norm=1.0)
  tx = train.sgd(0)
  update, _ = tx.update(
    jnp.full((), 3.0), tx.init(jnp.zeros(())), jnp.full((), 2.0)
  )
  want = {'sgd': -0.1 * (1 + 0.5 * 2), 'adam': -0.1, 'adamw': -0.2}[name]
  np.testing.assert_allclose(update, want, rtol=1e-5)
