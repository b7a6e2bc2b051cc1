"""The best round, and the best view of a family, by test accuracy: by hand."""

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


def best_of(rounds, **options):
  """Return the best of rounds; client i has model (r, 10 i) in round r."""
  models = {'w': jnp.zeros((3, 2))}
  best = test_selection.init_best(3)._replace(models=models)
  for number, correct in enumerate(rounds):
    w = jnp.stack([jnp.full(3, float(number)), 10.0 * jnp.arange(3)], 1)
    scores = Scores(correct, COUNT, jnp.zeros(3))
    best = UPDATE(best, scores, number, {'w': w}, **options)
  return best


@pytest.mark.parametrize(
  ('number', 'options', 'rounds', 'correct'),
  [
    (4, {}, [1, 0, 0], [2, 2, 3]),
    (4, {'replace_ties': True}, [3, 2, 2], [2, 2, 3]),
    # In total 5, 5, 6 and 3 predictions of each round are correct.
    (4, {'shared_round': True}, [2, 2, 2], [1, 2, 3]),
    (2, {'shared_round': True, 'replace_ties': True}, [1] * 3, [2, 0, 3]),
  ],
)
def test_the_best_round(number, options, rounds, correct):
  best = best_of(ROUNDS[:number], **options)
  assert best.round.tolist() == rounds
  assert best.correct.tolist() == correct
  want = [[float(own), 10.0 * i] for i, own in enumerate(rounds)]
  np.testing.assert_array_equal(best.models['w'], want)


def family(*columns):
  """Return views mix_0.0, mix_0.5, .. with these correct answers."""
  count = np.array([4, 4, 2])
  return {
    f'mix_{0.5 * place}': Scores(
      np.array(correct),
      count,
      loss=np.arange(3.0) + place,
      top5=count - place,
    )
    for place, correct in enumerate(columns)
  }


def test_the_best_view_of_all_and_of_each():
  """Shares (0 .5 .5), (1 0 .5), (.5 .5 .5): the second ties with the third."""
  scores = family([0, 2, 1], [4, 0, 1], [2, 2, 1])
  scores = {'initial': scores['mix_0.0'], **scores}
  got = test_selection.best_views(scores, np.array([9, 9, 9]))
  assert list(got) == ['mix']
  got = got['mix']
  assert got['together'] == {
    'view': 'mix_0.5',
    'mean': pytest.approx(50),
    'std': pytest.approx(100 * (1 / 6) ** 0.5),
    'std_sample': pytest.approx(50),
  }
  # 100, 50 and 50 %.
  assert got['each']['mean'] == pytest.approx(200 / 3)
  assert got['each']['std'] == pytest.approx(np.std([100, 50, 50]))
  # Clients choose 0.5, 0.0, 0.0: of these two columns the larger value.
  assert got['released'] == {
    'accuracy': pytest.approx(200 / 3),
    'loss': pytest.approx(np.mean([1, 2, 3])),
    'top5': pytest.approx(100),
  }
