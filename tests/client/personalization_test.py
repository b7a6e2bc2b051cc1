"""How one global model becomes a client's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  FINETUNE,
  KEY,
  assert_close,
  assert_same_bits,
  client_of,
  from_lists,
  make_data,
  make_task,
  params_of,
)

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()
PARAMS = params_of(TASK)
ONE = client_of(DATA, 4)


@pytest.mark.parametrize('part', ['body', 'head'])
def test_finetuning_moves_its_part_alone(part):
  personal = FINETUNE._replace(trainable=part, epochs=(2,))
  models = personalization.finetune(TASK, PARAMS, ONE, KEY(0), personal)
  assert list(models) == ['finetuned']
  for name, old, new in zip(
    trees.leaf_names(PARAMS),
    jax.tree.leaves(PARAMS),
    jax.tree.leaves(models['finetuned']),
    strict=True,
  ):
    if part == name.split('/')[0]:
      assert (new != old).any(), name
    else:
      assert_same_bits(new, old)


def test_finetuning_is_a_fit_on_training_inputs():
  """SGD with momentum at its own rate, on augmented images, without decay."""
  personal = FINETUNE._replace(epochs=(3, 1, 3))
  models = personalization.finetune(TASK, PARAMS, ONE, KEY(0), personal)
  assert list(models) == ['finetuned_1', 'finetuned']
  _, want = local_training.fit(
    TASK.loss,
    PARAMS,
    ONE,
    KEY(0),
    tx=optax.sgd(personal.learning_rate, personal.momentum),
    batching=local_training.Batching(BATCH, 3, TASK.augment),
    stops=(1, 3),
  )
  got = models['finetuned_1'], models['finetuned']
  assert_close(got, want.snapshots)


# ---- templates -------------------------------------------------------------


def points_task():
  """Return the task whose features are the image itself: points in a plane."""
  return TASK._replace(
    features=lambda params, x, mask: x,
    augment=lambda x, key: x,
    num_classes=4,
  )


def points():
  """Return class 0: (0, 0), (2, 0); class 1: (4, 4); class 3: (0, 6) twice."""
  x = [[0, 0], [4, 4], [0, 6], [2, 0], [0, 6]]
  data = client_of(from_lists(x), 0)
  return data._replace(y=jnp.array([0, 1, 3, 0, 3]))


@pytest.mark.parametrize('size', [2, 128])
def test_templates_are_class_means(size):
  model = personalization.class_templates(
    points_task(), PARAMS, points(), KEY(0), size
  )
  assert model.means.tolist() == [[1, 0], [4, 4], [0, 0], [0, 6]]
  assert model.present.tolist() == [True, True, False, True]
  assert_same_bits(model.params, PARAMS)


def test_nearest_template_by_hand():
  """From (1, 3):  distances 3, sqrt(10), sqrt(10); class 2 is not there.

  Cosines:  1/sqrt(10) with (1, 0);  4/sqrt(2)/sqrt(10) with (1, 1);
  3/sqrt(10) with (0, 1).
  """
  task = points_task()
  model = personalization.class_templates(task, PARAMS, points(), KEY(0), 5)
  predict = personalization.make_predict(task)
  x, inf = jnp.array([[1.0, 3.0]]), np.inf
  euclid = predict(personalization.Euclidean(model), x, jnp.ones(1))
  np.testing.assert_allclose(
    euclid, [[-3, -(10**0.5), -inf, -(10**0.5)]], rtol=1e-6
  )
  cosine = predict(personalization.Cosine(model), x, jnp.ones(1))
  ten = 10**-0.5
  np.testing.assert_allclose(
    cosine, [[ten, 4 * 2**-0.5 * ten, -inf, 3 * ten]], rtol=1e-6
  )


def test_each_template_batch_is_normalised_by_itself():
  """Nine examples in batches of four: features of 4, 4 and 1 of them."""
  task = make_task(noise=0)
  assert ONE.count == 9
  model = personalization.class_templates(task, PARAMS, ONE, KEY(0), 4)
  features = []
  for rows in (ONE.index[:4], ONE.index[4:8], ONE.index[8:]):
    x = task.normalise(ONE.x[rows], None)
    features.append(task.features(PARAMS, x, jnp.ones(len(x))))
  features, y = np.concatenate(features), np.asarray(ONE.y[ONE.index])
  for c in range(3):
    assert (y == c).any() == model.present[c]
    if model.present[c]:
      want = features[y == c].mean(0)
      np.testing.assert_allclose(model.means[c], want, rtol=1e-5, atol=1e-6)
