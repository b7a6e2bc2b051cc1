"""Cosines, by hand and pair by pair."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FINETUNE, KEY, client_of, make_data, make_task

from fedjax_pfl.analysis import similarity
from fedjax_pfl.client import personalization

pytestmark = pytest.mark.usefixtures('quick_compiler')


def cosine(a, b):
  return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_the_rows_of_a_head():
  """By hand, then U(0.45, 0.55) of the paper: m^2 / (m^2 + s^2) = 0.9967.

  Rows are classes, the columns of the kernel: cos 90 degrees, and twice cos 45
  degrees; lengths do not matter.
  """

  def cosine_of(rows):
    kernel = jnp.array(rows, float).T
    return similarity.head_row_cosine({'head': {'kernel': kernel}})

  want = (0 + 0.5**0.5 + 0.5**0.5) / 3
  assert cosine_of([[2, 0], [0, 5], [3, 3]]) == pytest.approx(want)
  assert np.isnan(cosine_of([[2, 0]]))
  paper = jax.random.uniform(KEY(0), (100, 1024), minval=0.45, maxval=0.55)
  assert cosine_of(paper) == pytest.approx(0.9967, abs=1e-4)


def test_layers_are_their_kernels_in_order_of_depth():
  def conv(value):
    return {'kernel': jnp.full((2, 1), value), 'bias': jnp.full(3, 9.0)}

  params = {
    'block10': {'pointwise': conv(5.0), 'depthwise': conv(4.0)},
    'block2': conv(3.0),
    'bn1': {'scale': jnp.ones(2), 'bias': jnp.ones(2)},
    'head': conv(6.0),
    'stem': conv(1.0),
  }
  layers = similarity.layer_weights(params)
  assert {name: row.tolist() for name, row in layers.items()} == {
    'stem': [1, 1],
    'block2': [3, 3],
    'block10': [4, 4, 5, 5],
    'head': [6, 6],
  }
  assert list(layers) == ['stem', 'block2', 'block10', 'head']


def test_cosines_while_clients_finetune_pair_by_pair():
  """Twelve clients, so that there are two blocks, the last one short."""
  counts = (7, 2, 3, 4, 9, 5, 3, 6, 4, 5, 8, 3)
  task, train = make_task(), make_data(counts)
  params = task.init(KEY(0))
  ids = np.arange(len(counts))[1:]  # without the first
  finetuning = FINETUNE._replace(epochs=(2,))
  done = []
  got = similarity.finetuning_cosines(
    task, params, train, ids, KEY(1), finetuning, done.append
  )
  assert done == [10, 11] and list(got) == ['body', 'head']
  finetune = jax.jit(
    lambda data, key: personalization.finetune(
      task, params, data, key, FINETUNE
    )
  )
  models = [
    finetune(client_of(train, i), jax.random.fold_in(KEY(1), i)) for i in ids
  ]
  for layer, values in got.items():
    assert values[0] == pytest.approx(1, abs=1e-6)
    for epoch, view in enumerate(('finetuned_1', 'finetuned'), 1):
      rows = [np.ravel(model[view][layer]['kernel']) for model in models]
      want = np.mean([cosine(a, b) for a, b in combinations(rows, 2)])
      assert want < 0.9999
      assert values[epoch] == pytest.approx(want, abs=1e-5)
