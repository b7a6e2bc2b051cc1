"""What is padding, and which ranks; the models are tables of logits.

The scores by each rule are compared in the golden case superfed_eval.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.metrics import SCORINGS, is_in_top_k

pytestmark = pytest.mark.usefixtures('quick_compiler')
COUNT, CLASSES, SIZE = 12, 7, 5  # 5 + 5 + 2
RNG = np.random.default_rng(3)
LOGITS = np.round(2 * RNG.normal(size=(COUNT + 3, CLASSES)))  # with ties
Y = RNG.integers(0, CLASSES, COUNT + 3)  # the last three are padding
ALL = np.arange(COUNT + 3)
TEST = ClientData(
  *jax.device_put((ALL, Y.astype(np.int32), ALL, np.asarray(COUNT)))
)


def score(rule, test=TEST):
  return SCORINGS[rule](
    lambda view, x, mask: view[x.astype(int)],
    jnp.asarray(LOGITS, jnp.float32),
    test,
    lambda x, key: x.astype(jnp.float32),
    SIZE,
  )


@pytest.mark.parametrize('rule', SCORINGS)
def test_padding_and_clients_without_tests_count_for_nothing(rule):
  got = score(rule)
  whole = score(rule, TEST._replace(index=TEST.index[:COUNT]))
  np.testing.assert_allclose([*got[:-1]], [*whole[:-1]], rtol=1e-5)
  assert got.count == COUNT and 0 < got.correct < got.top5 < COUNT
  if rule == 'exact':
    assert got.top5 == is_in_top_k(LOGITS[:COUNT], Y[:COUNT]).sum()
  none = score(rule, TEST._replace(count=jnp.asarray(0)))
  assert not any(map(float, jax.tree.leaves(none)))


def test_equal_logits_rank_by_class_and_nan_ranks_lowest():
  ties = jnp.zeros((6, 6))
  y = jnp.arange(6)
  assert is_in_top_k(ties, y).tolist() == [True] * 5 + [False]
  assert not is_in_top_k(jnp.full((6, 6), jnp.nan), y).any()
  assert is_in_top_k(ties[:4, :4], y[:4]).all()  # all four classes
