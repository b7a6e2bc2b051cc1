"""Crops, flips, rotations and constants, against plain loops and PIL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.data.transforms import (
  FEDCONCAT,
  PAD,
  RECIPES,
  cropping,
  make_transforms,
  rotate,
  scaled,
)

KEY = jax.random.key
CIFAR = (32, 32, 3)
SMALL = (10, 10, 3)  # fewer pixels; mirrored borders tell windows apart
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def batch(size=20, shape=CIFAR, low=0):
  rng = np.random.default_rng(0)
  return rng.integers(low, 256, (size, *shape), dtype=np.uint8)


def test_windows_and_flips_are_exact():
  x = batch(36, (6, 7, 2))
  dy, dx = np.arange(36) % 9, (np.arange(36) * 4) % 9
  flip = np.arange(36) % 2 == 1
  want = np.zeros_like(x)
  for b, i, j in np.ndindex(36, 6, 7):
    row = i + dy[b] - PAD
    column = (6 - j if flip[b] else j) + dx[b] - PAD
    if 0 <= row < 6 and 0 <= column < 7:
      want[b, i, j] = x[b, row, column]
  np.testing.assert_array_equal(cropping('constant')(x, dy, dx, flip), want)


@pytest.mark.parametrize(
  ('name', 'shape', 'mean', 'std'),
  [
    ('cifar10', CIFAR, *IMAGENET),
    ('cifar100', CIFAR, [0.507, 0.487, 0.441], [0.267, 0.256, 0.276]),
    ('mnist', (28, 28, 1), [0.1307], [0.3081]),
    ('folder', (5, 6, 3), [0.5], [0.25]),
  ],
)
def test_normalisation(name, shape, mean, std):
  x = batch(4, shape)
  _, normalise = make_transforms(name, shape)
  want = (x / 255 - np.array(mean)) / np.array(std)
  out = normalise(x, KEY(0))
  assert out.dtype == jnp.float32
  np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
  with jax.enable_x64(True):
    augment, normalise = make_transforms(name, shape)
    assert jax.eval_shape(augment, x, KEY(0)).dtype == jnp.float64
    np.testing.assert_allclose(normalise(x, KEY(0)), want, 1e-12, 1e-12)


def find_windows(x, normalised, recipe):
  """Return (dy, dx, flip) of every row of augmented images, by trying all.

  A window at the border has the zeros, or the mirrored pixels, that were
  padded before normalising.
  """
  raw = np.asarray(normalised) * recipe.std + np.array(recipe.mean)
  found = np.full((len(x), 3), -1)
  border = ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0))
  padded = np.pad(x, border, recipe.pad)
  for dy, dx, flip in np.ndindex(9, 9, 2):
    window = padded[:, dy : dy + 10, dx : dx + 10][:, :, :: 1 - 2 * flip]
    found[(window == np.rint(raw * 255)).all((1, 2, 3))] = dy, dx, flip
  return found


def check_uniform(drawn):
  """Check offsets and flips of 900 rows: independent, four deviations."""
  assert drawn.min() >= 0
  for axis in (0, 1):
    counts = np.bincount(drawn[:, axis], minlength=9)
    assert counts.shape == (9,) and (abs(counts - 100) < 40).all()
  assert not drawn[:, 2].any() or 390 < drawn[:, 2].sum() < 510
  correlation = np.corrcoef(drawn[:, :2].T) - np.eye(2)
  assert abs(correlation).max() < 0.15


@pytest.mark.parametrize(
  ('name', 'preprocessing', 'flips'),
  [
    ('cifar10', 'default', True),
    ('svhn_cropped', 'default', False),  # another digit, or none
    ('cifar10', 'fedconcat', True),  # mirrored borders, x / 255
  ],
)
def test_offsets_and_flips_are_uniform(name, preprocessing, flips):
  x = batch(900, SMALL, low=1)
  recipe = (FEDCONCAT if preprocessing == 'fedconcat' else RECIPES)[name]
  augment, normalise = make_transforms(name, SMALL, preprocessing)
  augmented = augment(x, KEY(1))
  drawn = find_windows(x, augmented, recipe)
  check_uniform(drawn)
  # A row depends on the key and its place alone.
  np.testing.assert_array_equal(augment(x[:3], KEY(1)), augmented[:3])
  assert drawn[:, 2].any() == flips
  if preprocessing == 'fedconcat':
    np.testing.assert_allclose(normalise(x, KEY(0)), x / 255, rtol=1e-6)


@pytest.mark.parametrize(
  ('name', 'preprocessing', 'is_unit'),
  [
    *((n, 'default', 0) for n, r in RECIPES.items() if not (r.crop or r.flip)),
    ('cifar10', 'unit', 1),
    ('digits', 'unit', 1),
    ('svhn_cropped', 'fedconcat', 1),
    ('fashion_mnist', 'fedconcat', 1),
  ],
)
def test_the_others_are_not_augmented(name, preprocessing, is_unit):
  augment, normalise = make_transforms(name, SMALL, preprocessing)
  assert augment is normalise
  if is_unit:
    x = batch(5, SMALL)
    np.testing.assert_allclose(normalise(x, KEY(0)), x / 255, rtol=1e-6)


def test_images_are_scaled_after_all_else():
  """As PIL enlarges floats; grey ones become three equal channels first."""
  from PIL import Image

  grey = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 1), np.uint8)
  transforms = make_transforms('digits', (6, 6, 3), 'imagenet')
  assert transforms[0] is transforms[1]
  augment, normalise = scaled(transforms, 16, 3)
  assert augment is normalise
  got = normalise(jnp.asarray(grey), KEY(0))
  x = transforms[1](np.repeat(grey, 3, -1), KEY(0))
  for image, own in zip(got, np.asarray(x), strict=True):
    for channel in range(3):
      pil = Image.fromarray(own[..., channel])
      pil = pil.resize((16, 16), Image.Resampling.BILINEAR)
      np.testing.assert_allclose(image[..., channel], pil, atol=1e-5)
  same = scaled(transforms, 0, 3)[1](grey, KEY(0))
  np.testing.assert_allclose(same, x, atol=1e-6)
  both = scaled(make_transforms('cifar10', (6, 6, 3)), 16, 3)
  assert both[0] is not both[1]


@pytest.mark.parametrize('shape', [(32, 32, 3), (7, 10, 1)])
def test_rotation_is_pils(shape):
  from PIL import Image

  x = batch(30, shape, low=1)
  degrees = np.linspace(-15, 15, 30)
  degrees[0] = 0
  got = np.asarray(jax.jit(rotate)(x, degrees))
  assert got.dtype == np.uint8
  turned = [
    Image.fromarray(image.squeeze()).rotate(angle)
    for image, angle in zip(x, degrees, strict=True)
  ]
  want = np.stack([np.asarray(image) for image in turned]).reshape(x.shape)
  assert (got != want).mean() < 1e-3  # PIL's angles are fixed-point numbers
  assert (got[0] == x[0]).all()
  assert (got[1] == 0).any()
