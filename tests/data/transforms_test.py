import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.data import make_transforms, transforms
from fedjax_pfl.data.transforms import (
  FEDCONCAT,
  PAD,
  RECIPES,
  crop_flip,
  rotate,
)

CIFAR = (32, 32, 3)
KEY = jax.random.key
SMALL = (8, 8, 3)  # more windows to the pixel, fewer seconds
IMAGENET_MEAN = np.array([0.485, 0.456, 0.406])
IMAGENET_STD = np.array([0.229, 0.224, 0.225])


def batch(size=20, shape=CIFAR, low=0):
  rng = np.random.default_rng(0)
  return rng.integers(low, 256, (size, *shape), dtype=np.uint8)


def crop_flip_by_hand(x, dy, dx, flip):
  height, width = x.shape[1:3]
  out = np.zeros_like(x)
  for b, i, j in np.ndindex(len(x), height, width):
    row = i + dy[b] - PAD
    column = (width - 1 - j if flip[b] else j) + dx[b] - PAD
    if 0 <= row < height and 0 <= column < width:
      out[b, i, j] = x[b, row, column]
  return out


def test_windows_and_flips_are_exact():
  x = batch(36, (6, 7, 2))
  dy = np.arange(36) % 9
  dx = (np.arange(36) * 4) % 9
  flip = np.arange(36) % 2 == 1
  np.testing.assert_array_equal(
    crop_flip(x, dy, dx, flip), crop_flip_by_hand(x, dy, dx, flip)
  )


@pytest.mark.parametrize(
  ('name', 'shape', 'mean', 'std'),
  [
    ('cifar10', CIFAR, IMAGENET_MEAN, IMAGENET_STD),
    ('cifar100', CIFAR, [0.507, 0.487, 0.441], [0.267, 0.256, 0.276]),
    ('tiny_imagenet', (64, 64, 3), IMAGENET_MEAN, IMAGENET_STD),
    ('mnist', (28, 28, 1), [0.1307], [0.3081]),
    ('emnist/byclass', (28, 28, 1), [0.1307], [0.3081]),
    ('folder', (5, 6, 3), [0.5], [0.25]),
  ],
)
def test_normalisation(name, shape, mean, std):
  x = batch(4, shape)
  _, normalise = make_transforms(name, shape)
  out = normalise(x, jax.random.key(0))
  assert out.dtype == jnp.float32
  want = (x / 255 - np.array(mean)) / np.array(std)
  np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


def test_digits_and_synthetic_constants_fit_their_images():
  from fedjax_pfl.data import load_dataset

  for name in ('digits', 'synthetic'):
    x = load_dataset(name).train.x
    _, normalise = make_transforms(name, x.shape[1:])
    out = normalise(x, jax.random.key(0))
    assert abs(float(out.mean())) < 0.02, name
    assert abs(float(out.std()) - 1) < 0.02, name


def test_zeros_are_padded_before_normalising():
  # No pixel of the images is 0, so what is -mean / std was padded.
  x = batch(200, low=1)
  augment, _ = make_transforms('cifar10', CIFAR)
  out = np.asarray(augment(x, jax.random.key(0)))
  black = np.isclose(out, -IMAGENET_MEAN / IMAGENET_STD, atol=1e-6).all(-1)
  rows, columns = black.all(2).sum(1), black.all(1).sum(1)
  assert rows.max() == columns.max() == PAD
  # Padding is at the border, nowhere else.
  inner = black[:, PAD:-PAD, PAD:-PAD]
  assert not inner.any()


def find_window(x, out):
  """Return (dy, dx, flip) of every row, by trying all of them."""
  found = np.full((len(x), 3), -1)
  for dy, dx, flip in np.ndindex(9, 9, 2):
    rows = [np.full(len(x), value) for value in (dy, dx, flip)]
    hit = (np.asarray(crop_flip(x, *rows)) == out).all((1, 2, 3))
    found[hit] = dy, dx, flip
  return found


def raw(normalised):
  return np.rint((normalised * IMAGENET_STD + IMAGENET_MEAN) * 255)


def test_offsets_and_flips_are_uniform():
  x = batch(900, SMALL)
  augment, _ = make_transforms('cifar10', SMALL)
  out = np.asarray(augment(x, jax.random.key(1)))
  windows = find_window(x, raw(out))
  assert windows.min() == 0
  for axis in (0, 1):
    counts = np.bincount(windows[:, axis], minlength=9)
    assert counts.shape == (9,)
    assert (abs(counts - 100) < 40).all()  # four standard deviations
  assert 390 < windows[:, 2].sum() < 510
  drawn = windows - windows.mean(0)
  correlation = np.corrcoef(drawn.T) - np.eye(3)
  assert abs(correlation).max() < 0.15


def test_svhn_is_cropped_and_never_flipped():
  x = batch(100, SMALL)
  augment, _ = make_transforms('svhn_cropped', SMALL)
  recipe = RECIPES['svhn_cropped']
  out = np.asarray(augment(x, jax.random.key(0)))
  out = np.rint((out * np.array(recipe.std) + np.array(recipe.mean)) * 255)
  windows = find_window(x, out)
  assert windows[:, 2].tolist() == [0] * 100
  assert len(np.unique(windows[:, 0])) == 9


@pytest.mark.parametrize(
  'name', sorted(n for n, r in RECIPES.items() if not (r.crop or r.flip))
)
def test_the_others_are_not_augmented(name):
  augment, normalise = make_transforms(name, (8, 8, 1))
  assert augment is normalise


@pytest.mark.parametrize(
  ('inputs', 'name'),
  [
    ('unit', 'cifar10'),
    ('unit', 'digits'),
    ('fedconcat', 'svhn_cropped'),
    ('fedconcat', 'fashion_mnist'),
  ],
)
def test_pixels_over_255_alone(inputs, name):
  x = batch(5, SMALL)
  augment, normalise = make_transforms(name, SMALL, inputs)
  assert augment is normalise
  np.testing.assert_allclose(normalise(x, KEY(0)), x / 255, rtol=1e-6)


def test_fedconcat_reflects_and_does_not_standardise():
  x = batch(200, SMALL, low=1)
  augment, normalise = make_transforms('cifar10', SMALL, 'fedconcat')
  np.testing.assert_allclose(normalise(x, KEY(0)), x / 255, rtol=1e-6)
  out = np.rint(np.asarray(augment(x, KEY(0))) * 255)
  windows = np.full((len(x), 3), -1)
  padded = np.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), 'reflect')
  for dy, dx in np.ndindex(9, 9):
    window = padded[:, dy : dy + 8, dx : dx + 8]
    for flip in (0, 1):
      hit = (window[:, :, :: 1 - 2 * flip] == out).all((1, 2, 3))
      windows[hit] = dy, dx, flip
  assert windows.min() == 0
  assert windows[:, :2].max() == 8
  assert 70 < windows[:, 2].sum() < 130


@pytest.mark.parametrize('shape', [(32, 32, 3), (7, 10, 1)])
def test_rotation_is_pils(shape):
  from PIL import Image

  x = batch(30, shape, low=1)
  degrees = np.linspace(-15, 15, 30)
  degrees[0] = 0
  got = np.asarray(jax.jit(rotate)(x, degrees))
  assert got.dtype == np.uint8
  want = np.stack([
    np.asarray(Image.fromarray(image.squeeze()).rotate(angle))
    for image, angle in zip(x, degrees, strict=True)
  ]).reshape(x.shape)  # fmt: skip
  assert (got != want).mean() < 1e-3  # PIL's angles are fixed-point numbers
  assert (got[0] == x[0]).all()
  assert (got[1] == 0).any()


def test_fedconcat_turns_each_row_by_an_angle_of_its_own(monkeypatch):
  angles = []
  monkeypatch.setattr(
    transforms, 'rotate', lambda x, degrees: angles.append(degrees) or x
  )
  x = batch(900, SMALL)
  augment, normalise = make_transforms('cifar100', SMALL, 'fedconcat')
  out = np.asarray(augment(x, KEY(0)))
  mean, std = (FEDCONCAT['cifar100'][i] for i in (0, 1))
  windows = find_window(x, np.rint((out * std + np.array(mean)) * 255))
  assert windows.min() == 0
  degrees = np.asarray(angles[0])
  assert degrees.shape == (900,)
  assert -15 <= degrees.min() < -14.5 and 14.5 < degrees.max() <= 15
  assert abs(degrees.mean()) < 4 * 15 / np.sqrt(3 * 900)
  correlation = np.corrcoef(np.c_[windows, degrees].T) - np.eye(4)
  assert abs(correlation).max() < 0.15
  augment(x[:5], KEY(0))
  np.testing.assert_array_equal(angles[1], degrees[:5])
  want = (x / 255 - np.array(mean)) / np.array(std)
  np.testing.assert_allclose(normalise(x, KEY(0)), want, rtol=1e-5, atol=1e-6)


def test_a_row_depends_on_its_place_and_its_key():
  """Not on rows behind it, nor on other clients; compiled or not."""
  augment, _ = make_transforms('cifar10', SMALL)
  x = np.repeat(batch(1, SMALL), 16, 0).reshape(2, 8, *SMALL)
  keys = jax.random.split(KEY(3), 2)
  together = np.asarray(jax.jit(jax.vmap(augment))(x, keys))
  few = augment(x[0, :5], keys[0])
  np.testing.assert_allclose(together[0, :5], few, rtol=1e-5, atol=1e-6)
  assert len(np.unique(together.reshape(16, -1), axis=0)) > 12


def test_doubles_under_x64():
  with jax.enable_x64(True):
    x = batch(2)
    augment, normalise = make_transforms('cifar10', CIFAR)
    key = jax.random.key(0)
    assert jax.eval_shape(augment, x, key).dtype == jnp.float64
    want = (x / 255 - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(normalise(x, key), want, rtol=1e-12, atol=1e-12)


def test_none_changes_nothing():
  x = np.random.default_rng(0).standard_normal((2, 3, 3, 5), np.float32)
  for transform in make_transforms('none', (3, 3, 5)):
    assert transform(x, jax.random.key(0)) is x


@pytest.mark.parametrize(
  ('name', 'shape', 'message'),
  [
    ('cifar', CIFAR, r'did you mean cifar10\?'),
    ('cifar10', (32, 32, 1), r'expected \(height, width, 3\) for cifar10'),
    ('mnist', (28, 28), r'expected \(height, width, 1\) for mnist'),
  ],
)
def test_sentences(name, shape, message):
  with pytest.raises(BadInput, match=message):
    make_transforms(name, shape)


def test_a_crop_is_a_pass_of_its_own_on_a_cpu():
  """Fused into a reader it takes four times as long."""
  x, key = np.zeros((2, 32, 32, 3), np.uint8), jax.random.key(0)
  for platform, apart in (('cpu', True), ('gpu', False)):
    augment, _ = make_transforms('cifar10', (32, 32, 3))
    with compiling_for(platform):
      program = jax.jit(augment).lower(x, key).as_text()
    assert ('inlineable = "false"' in program) == apart
