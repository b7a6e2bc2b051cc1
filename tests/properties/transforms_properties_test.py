"""Properties of transforms: every pixel is one of its own image, or black."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedjax_pfl.data import make_transforms
from fedjax_pfl.data.transforms import FEDCONCAT, RECIPES

pytestmark = pytest.mark.usefixtures('quick_compiler')
KEY = jax.random.key
ROWS, SIDE = 4, 6
# One of each kind: windows with zeros, or mirrored borders; turned as well.
KINDS = {
  (recipe.crop, recipe.flip, recipe.pad, recipe.degrees > 0): (
    preprocessing,
    name,
  )
  for preprocessing, table in (('default', RECIPES), ('fedconcat', FEDCONCAT))
  for name, recipe in table.items()
}
every_kind = pytest.mark.parametrize(('preprocessing', 'name'), KINDS.values())
SEEDS = st.integers(0, 2**31 - 1)


def recipe_of(preprocessing, name):
  return (FEDCONCAT if preprocessing == 'fedconcat' else RECIPES)[name]


@functools.cache
def transforms(preprocessing, name):
  channels = len(recipe_of(preprocessing, name).mean)
  pair = make_transforms(name, (SIDE, SIDE, channels), preprocessing)
  return channels, *map(jax.jit, pair)


def images(seed, channels):
  """Return images no two pixels of which are alike, nor black."""
  values = 1 + np.random.default_rng(seed).permutation(255)
  size = ROWS * SIDE * SIDE
  x = np.resize(values, size).reshape(ROWS, SIDE, SIDE, 1).astype(np.uint8)
  return np.concatenate([x, 255 - x, x // 2][:channels], -1)


def raw(preprocessing, name, x):
  recipe = recipe_of(preprocessing, name)
  mean, std = np.array(recipe.mean), np.array(recipe.std)
  return np.rint((np.asarray(x) * std + mean) * 255).astype(int)


@every_kind
@given(seed=SEEDS)
def test_values_come_from_the_image(preprocessing, name, seed):
  channels, augment, normalise = transforms(preprocessing, name)
  x = images(seed, channels)
  np.testing.assert_array_equal(
    raw(preprocessing, name, normalise(x, KEY(seed))), x.astype(int)
  )
  got = raw(preprocessing, name, augment(x, KEY(seed)))
  for image, own in zip(got, x, strict=True):
    there = {(0,) * channels, *map(tuple, own.reshape(-1, channels).tolist())}
    assert set(map(tuple, image.reshape(-1, channels).tolist())) <= there


@every_kind
@given(seed=SEEDS, row=st.integers(0, ROWS - 1))
def test_a_row_depends_on_key_and_position_only(preprocessing, name, seed, row):
  channels, augment, _ = transforms(preprocessing, name)
  x, other = images(seed, channels), images(seed + 1, channels)
  other[row] = x[row]
  one, two = (augment(each, KEY(seed)) for each in (x, other))
  np.testing.assert_array_equal(one[row], two[row])
  np.testing.assert_array_equal(augment(x, KEY(seed)), one)
