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


# As published with the data: the coarse class of fine classes 0, 1, ..
PUBLISHED = """
4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15
0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17
10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19
18 1 2 15 6 0 17 8 14 13
"""


def test_the_coarse_classes_of_cifar100():
  assert class_names.coarse_of_fine().tolist() == [
    int(word) for word in PUBLISHED.split()
  ]
  assert len(set(class_names.CIFAR100)) == 100 and len(class_names.COARSE) == 20


@pytest.mark.parametrize(
  ('words', 'dataset', 'number', 'chosen'),
  [
    (('vehicles',), 'cifar10', 10, [0, 1, 8, 9]),
    (('7', 'cat'), 'cifar10', 10, [7, 3]),
  ],
)
def test_choices_of_classes(words, dataset, number, chosen):
  assert class_names.choose_classes(words, dataset, number) == chosen


def test_groups_of_classes():
  fine = class_names.choose_classes(('vehicles',), 'cifar100', 100)
  assert set(class_names.coarse_of_fine()[fine]) == {18, 19} and len(fine) == 10
  group, names = class_names.group_classes('fine', 'cifar10', 10)
  assert group.tolist() == [*range(10)] and names[9] == 'truck'
  group, names = class_names.group_classes('coarse', 'cifar100', 100)
  assert names[group[class_names.CIFAR100.index('whale')]] == 'aquatic mammals'
  message = refused(class_names.group_classes, 'coarse', 'cifar10', 10)
  assert message.startswith("colours: got 'coarse', expected fine")


def test_a_class_that_is_not_there():
  message = refused(class_names.choose_classes, ('3', 'tank'), 'digits', 10)
  assert "classes: got 'tank', expected names or numbers" in message


# ---- the chart
