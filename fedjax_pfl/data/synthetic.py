"""Generate synthetic images of any size, for tests and benchmarks.

Image p of class y, with smooth random fields T (one for each class):

  x_p = T[y] shifted by s_p + 0.6 T[z_p] shifted by t_p + noise

The distractor z_p is any class; the shifts are cyclic, up to an eighth of the
side. A linear model gets 59 % at the default size, 93 % at CIFAR's.
"""

import numpy as np

from fedjax_pfl.core.rules import Rule, interval
from fedjax_pfl.data import images
from fedjax_pfl.data.images import Images, Synthetic

SIGNAL, DISTRACTOR = 79, 47  # with noise up to 127 at most 253: no overflow


def peek(where: images.Where) -> images.Shape:
  """Return image shape and number of classes."""
  spec = where.synthetic
  return images.Shape(tuple(spec.image_shape), spec.num_classes)


def load(where: images.Where) -> images.Dataset:
  """Return the image set of a specification; equal specs, equal bits."""
  spec = where.synthetic
  Rule(
    lambda value: len(value) == 3 and min(value) >= 1,
    'three positive sizes (height, width, channels)',
    'a missing channel axis: grey images have one channel',
  ).check('image_shape', spec.image_shape)
  interval(
    f'[2, {min(spec.train_size, spec.test_size)}]',
    'sizes that were lowered without lowering num_classes',
    'classes of which both splits have images,',
  ).check('num_classes', spec.num_classes)
  fields, train, test = np.random.SeedSequence(spec.seed).spawn(3)
  templates = _smooth_fields(spec, np.random.default_rng(fields))
  return images.make_dataset(
    'synthetic',
    _draw(templates, spec.train_size, np.random.default_rng(train)),
    _draw(templates, spec.test_size, np.random.default_rng(test)),
    spec.num_classes,
  )


def _smooth_fields(spec: Synthetic, rng: np.random.Generator) -> np.ndarray:
  """Return one field in [0, 1] for each class: low-passed, cyclic noise."""
  height, width, channels = spec.image_shape
  noise = rng.standard_normal((spec.num_classes, height, width, channels))
  fy = np.fft.fftfreq(height)[:, None]
  fx = np.fft.fftfreq(width)[None, :]
  # About four waves to a side, whatever its length.
  keep = np.exp(-((fy * height / 4) ** 2) - (fx * width / 4) ** 2)
  spectrum = np.fft.fft2(noise, axes=(1, 2)) * keep[:, :, None]
  spectrum[:, 0, 0] = 0  # a mean colour would survive every shift
  fields = np.fft.ifft2(spectrum, axes=(1, 2)).real
  scale = 5 * fields.std((1, 2, 3), keepdims=True) + 1e-9
  return np.clip(0.5 + fields / scale, 0, 1)  # [Y, H, W, ch]


def _draw(templates: np.ndarray, size: int, rng: np.random.Generator) -> Images:
  num_classes = len(templates)
  y = rng.permutation(np.arange(size) % num_classes)
  other = rng.integers(0, num_classes, size)
  # Bytes summed in place: 50,000 images of CIFAR's size in about a second.
  x = rng.integers(0, 256, (size, *templates.shape[1:]), np.uint8)
  x >>= 1  # noise in 0 .. 127
  _add_shifted(x, (templates * SIGNAL).astype(np.uint8), y, rng)
  _add_shifted(x, (templates * DISTRACTOR).astype(np.uint8), other, rng)
  return Images(x, y.astype(np.int32))


def _add_shifted(
  x: np.ndarray, templates: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> None:
  """Add to every image the template of its class, rolled by its own shift."""
  reach = [max(1, side // 8) for side in templates.shape[1:3]]
  dy, dx = (rng.integers(-r, r + 1, len(y)) for r in reach)
  for shift in {*zip(dy.tolist(), dx.tolist(), strict=True)}:
    rows = np.flatnonzero((dy == shift[0]) & (dx == shift[1]))
    x[rows] += np.roll(templates, shift, (1, 2))[y[rows]]
