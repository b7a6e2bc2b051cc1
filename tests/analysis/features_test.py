"""Features of batches, their map, and the names of the classes."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, make_task, refused

from fedjax_pfl.analysis import class_names
from fedjax_pfl.analysis.features import image_features
from fedjax_pfl.data.images import Images

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_features_are_those_of_every_batch():
  """10 = 4 + 4 + 2, each batch normalised by itself."""
  task = make_task()
  params = task.init(KEY(0))
  rng = np.random.default_rng(0)
  x = rng.integers(0, 255, (10, 2, 2, 1), np.uint8)
  got = image_features(task, params, Images(x, np.zeros(10, int)), 4)
  want = [
    task.features(params, task.normalise(part, KEY(0)), jnp.ones(len(part)))
    for part in (x[:4], x[4:8], x[8:])
  ]
  np.testing.assert_allclose(got, np.concatenate(want), atol=1e-6)


def test_classes_by_name_or_number():
  choose = class_names.choose_classes
  assert choose(('7', 'cat'), 'cifar10', 10) == [7, 3]
  assert choose((), 'digits', 10) == [*range(10)]
  assert len({*class_names.class_names('cifar100', 100)}) == 100


def test_a_class_that_is_not_there():
  message = refused(class_names.choose_classes, ('3', 'tank'), 'digits', 10)
  assert "classes: got 'tank', expected names or numbers" in message
