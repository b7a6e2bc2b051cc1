"""The best round by test accuracy, by hand: three clients, four rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import test_selection

COUNT = jnp.array([4, 4, 4])
# Correct predictions of each client in rounds 0 to 3.
ROUNDS = jnp.array([[0, 2, 3], [2, 0, 3], [1, 2, 3], [2, 1, 0]])


def scores_of(correct):
  return Scores(correct, COUNT, jnp.zeros(3))


def best_of_rounds(**options):
  """Return the best of all rounds; client i has model (r, 10 i) in round r."""
  models = {'w': jnp.zeros((3, 2))}
  best = test_selection.init_best(3, models)
  update = jax.jit(
    test_selection.update_best, static_argnames=('replace_ties', 'shared_round')
  )
  for number, correct in enumerate(ROUNDS):
    w = jnp.stack([jnp.full(3, float(number)), 10.0 * jnp.arange(3)], 1)
    best = update(best, scores_of(correct), number, {'w': w}, **options)
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
  best = best_of_rounds(**options)
  assert best.round.tolist() == rounds
  assert best.correct.tolist() == correct
  want = [[float(number), 10.0 * i] for i, number in enumerate(rounds)]
  np.testing.assert_array_equal(best.models['w'], want)


def first_two(*correct, **options):
  best = test_selection.init_best(3)
  for number, own in enumerate(correct):
    best = test_selection.update_best(
      best, scores_of(own), number, shared_round=True, **options
    )
  return best.round.tolist()


def test_ties_of_a_shared_round():
  assert first_two(*ROUNDS[:2]) == [0] * 3
  assert first_two(*ROUNDS[:2], replace_ties=True) == [1] * 3


@pytest.mark.parametrize('shared_round', [False, True])
def test_the_first_round_wins_even_without_a_correct_prediction(shared_round):
  best = test_selection.update_best(
    test_selection.init_best(3),
    scores_of(jnp.zeros(3, int)),
    5,
    shared_round=shared_round,
  )
  assert best.round.tolist() == [5] * 3
