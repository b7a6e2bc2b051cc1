"""The best round by test accuracy, by hand; of views: case superfed_eval."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import test_selection

# Correct predictions of each of three clients in rounds 0 to 3.
ROUNDS = np.array([[0, 2, 3], [2, 0, 3], [1, 2, 3], [2, 1, 0]])
COUNT = np.array([4, 4, 4])
UPDATE = jax.jit(
  test_selection.update_best, static_argnames=('replace_ties', 'shared_round')
)


def best_of(**options):
  """Return the best of rounds; client i has model (r, 10 i) in round r."""
  models = {'w': jnp.zeros((3, 2))}
  best = test_selection.init_best(3)._replace(models=models)
  for number, correct in enumerate(ROUNDS):
    w = jnp.stack([jnp.full(3, float(number)), 10.0 * jnp.arange(3)], 1)
    scores = Scores(correct, COUNT, jnp.zeros(3))
    best = UPDATE(best, scores, number, {'w': w}, **options)
  return best


@pytest.mark.parametrize(
  ('options', 'rounds', 'correct'),
  [
    ({}, [1, 0, 0], [2, 2, 3]),
    ({'replace_ties': True}, [3, 2, 2], [2, 2, 3]),
    # In total 5, 5, 6 and 3 predictions of each round are correct.
    ({'shared_round': True}, [2, 2, 2], [1, 2, 3]),
  ],
)
def test_the_best_round(options, rounds, correct):
  best = best_of(**options)
  assert best.round.tolist() == rounds
  assert best.correct.tolist() == correct
  want = [[float(own), 10.0 * i] for i, own in enumerate(rounds)]
  np.testing.assert_array_equal(best.models['w'], want)
