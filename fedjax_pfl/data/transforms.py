"""Turn uint8 images into model inputs: crop, flip, rotate, normalise.

  augment(x)   = normalise(rotate(flip(window(pad(x, 4)))))
  normalise(x) = (x / 255 - mean) / std

Zeros are padded before normalising: a padded pixel becomes -mean / std. The
steps and constants of an image set are its recipe; `preprocessing` selects:

  default    RECIPES, those of FedBABU's tables
  unit       x / 255 alone (SuPerFed)
  signed     x / 127.5 - 1, of all sets (PFLlib)
  imagenet   ImageNet's mean and std alone, of all sets in colour
  fedconcat  FEDCONCAT, for the sets of that paper
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import one_pass
from fedjax_pfl.core.types import Array, Key, Transform

PAD = 4  # pixels on each side; windows start at 0 .. 2 PAD


class Recipe(NamedTuple):
  """The transforms of one image set; one constant is for all channels."""

  mean: tuple[float, ...] = (0.0,)
  std: tuple[float, ...] = (1.0,)
  crop: bool = False
  flip: bool = False
  pad: str = 'constant'  # with zeros; or 'reflect': without the edge itself
  degrees: float = 0.0  # rotated by an angle of U(-degrees, degrees)
  side: int = 0  # images are scaled to side x side when they are loaded


IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INK = Recipe((0.1307,), (0.3081,))  # measured on MNIST; flips change letters
RECIPES = {
  # ImageNet's constants, as in FedBABU's tables.
  'cifar10': Recipe(*IMAGENET, crop=True, flip=True),
  'cifar100': Recipe(
    (0.507, 0.487, 0.441), (0.267, 0.256, 0.276), crop=True, flip=True
  ),
  'tiny_imagenet': Recipe(*IMAGENET, crop=True, flip=True),
  # Not flipped: a mirrored digit is another one, or none. Its own constants.
  'svhn_cropped': Recipe(
    (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), crop=True
  ),
  'mnist': INK,
  'emnist/byclass': INK,
  'fashion_mnist': INK,
  'digits': Recipe((0.3052,), (0.3760,)),  # of its training images
  'digits_domains': Recipe((0.5,), (0.5,)),
  'synthetic': Recipe((0.492,), (0.162,)),  # of every size alike
  'folder': Recipe((0.5,), (0.25,)),  # unknown images: inputs in [-2, 2]
  'npz': Recipe((0.5,), (0.25,)),
  'clients': Recipe((0.5,), (0.25,)),
  'pfllib': Recipe((0.5,), (0.5,)),  # x / 127.5 - 1, as in its files
  'femnist': Recipe(),
  # Tokens and tables, which have no transform.
  'table': Recipe(),
  'heart': Recipe(),
  'shakespeare': Recipe(),
  'sent140': Recipe(),
}
# Those of every set.
UNIT, SIGNED = Recipe(), Recipe((0.5,), (0.5,))
OF_ALL = {'unit': UNIT, 'signed': SIGNED, 'imagenet': Recipe(*IMAGENET)}
# Section 3.3 of the protocol; the others of that paper are not images.
FEDCONCAT = {
  'cifar10': Recipe(crop=True, flip=True, pad='reflect'),
  'cifar100': Recipe(
    (0.5070752, 0.4865489, 0.4409178),
    (0.2673343, 0.2564385, 0.2761505),
    crop=True,
    flip=True,
    degrees=15,
  ),
  'svhn_cropped': UNIT,
  'fashion_mnist': UNIT,
  'tiny_imagenet': Recipe(
    (0.5,), (0.5,), crop=True, flip=True, degrees=15, side=32
  ),
}
PREPROCESSINGS = ('default', *OF_ALL, 'fedconcat')


def find_recipe(name: str, preprocessing: str = 'default') -> Recipe:
  """Return the recipe of an image set; see PREPROCESSINGS."""
  one_of(PREPROCESSINGS, 'a way to make inputs of images').check(
    'preprocessing', preprocessing
  )
  table = FEDCONCAT if preprocessing == 'fedconcat' else RECIPES
  one_of(
    [*table, 'none'],
    f'an image set with a recipe for preprocessing={preprocessing}',
    "a misspelt name, or a set that this paper does not use: 'unit' and "
    "'signed' are for all sets, and 'none' leaves images as they are",
  ).check('dataset', name)
  return OF_ALL.get(preprocessing, table[name])


def make_transforms(
  name: str, image_shape: tuple[int, int, int], preprocessing: str = 'default'
) -> tuple[Transform, Transform]:
  """Return the transforms of an image set, for training and for testing.

  Row b of an augmented batch depends on the key and on b alone, not on the
  number of rows. Without augmentation both are the same function.

  Args:
    name: the image set; 'none' leaves images as they are, for floats that are
      model inputs already.
    image_shape: (H, W, ch).
    preprocessing: one of PREPROCESSINGS.

  Returns:
    (augment, normalise), both (x [B, H, W, ch] uint8, key) -> inputs [B, H, W,
    ch] of the default float dtype; normalise needs no key.

  >>> augment, normalise = pfl.make_transforms('cifar10', (32, 32, 3))
  >>> x = jnp.zeros((5, 32, 32, 3), jnp.uint8)
  >>> augment(x, jax.random.key(0)).shape, normalise(x).dtype
  ((5, 32, 32, 3), dtype('float32'))
  """
  if name == 'none':
    return (lambda x, rng=None: x,) * 2
  recipe = find_recipe(name, preprocessing)
  if len(image_shape) != 3 or len(recipe.mean) not in (1, image_shape[-1]):
    raise bad_input(
      'image_shape',
      got=image_shape,
      expected='(height, width, '
      f'{"channels" if len(recipe.mean) == 1 else 3}) for {name}',
      choices=['folder', 'none'],
      cause='the shape of another image set; own images go under `folder`',
    )

  def normalise(x: Array, rng: Key | None = None) -> Array:
    dtype = jnp.result_type(float)
    mean, std = jnp.array(recipe.mean, dtype), jnp.array(recipe.std, dtype)
    return (x.astype(dtype) / 255 - mean) / std

  if not (recipe.crop or recipe.flip or recipe.degrees):
    return normalise, normalise

  def augment(x: Array, rng: Key) -> Array:
    rows = x.shape[0]
    key_y, key_x, key_flip = jax.random.split(rng, 3)
    if recipe.crop or recipe.flip:
      reach = 2 * PAD + 1 if recipe.crop else 1
      start = 0 if recipe.crop else PAD
      dy = start + jax.random.randint(key_y, (rows,), 0, reach)
      dx = start + jax.random.randint(key_x, (rows,), 0, reach)
      flip = jax.random.bernoulli(key_flip, 0.5, (rows,)) & recipe.flip
      x = cropping(recipe.pad)(x, dy, dx, flip)
    if recipe.degrees:
      key = jax.random.fold_in(rng, 3)  # the three above are 0 to 2
      most = recipe.degrees
      angles = jax.random.uniform(key, (rows,), minval=-most, maxval=most)
      x = rotate(x, angles)
    return normalise(x, rng)

  return augment, normalise


def scaled(
  transforms: tuple[Transform, Transform], side: int, channels: int
) -> tuple[Transform, Transform]:
  """Return transforms that scale images to side x side, where they are used.

  Linearly; side 0 leaves them. Before all else grey images get so many equal
  channels.
  """

  def around(transform: Transform) -> Transform:
    def scale(x: Array, rng: Key | None = None) -> Array:
      x = jnp.repeat(x, channels // x.shape[-1], -1)
      x = transform(x, rng)
      shape = (len(x), side, side, channels)
      return jax.image.resize(x, shape, 'linear') if side else x

    return scale

  augment, normalise = transforms
  scale = around(normalise)
  return scale if augment is normalise else around(augment), scale


@functools.cache
def cropping(mode: str) -> Callable[..., Array]:
  """Return (x, dy, dx, flip) -> the windows of padded images, then flipped.

    out[b, i, j] = pad(x)[b, dy + i, dx + j],  j mirrored where flip[b]

  On a CPU a pass of its own: fused into a reader that transposes, it took 0.28
  instead of 0.08 ms for 10 CIFAR images, 1.3 instead of 0.2 ms for 50.
  """

  def crop_flip(x: Array, dy: Array, dx: Array, flip: Array) -> Array:
    padded = jnp.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode)

    def crop(image, dy, dx, flip):
      window = jax.lax.dynamic_slice(image, (dy, dx, 0), x.shape[1:])
      return jnp.where(flip, window[:, ::-1], window)

    return jax.vmap(crop)(padded, dy, dx, flip)

  return one_pass(crop_flip)


def rotate(x: Array, degrees: Array) -> Array:
  """Return row b rotated about its centre, counterclockwise; corners are 0.

    out[b, i, j] = x[b, floor(s)],
    s = c + R (i + 1/2 - c_y, j + 1/2 - c_x),  c = (H/2, W/2)

  The nearest pixel, as in PIL.
  """
  height, width = x.shape[1:3]
  y = jnp.arange(height)[:, None] + 0.5 - height / 2
  z = jnp.arange(width) + 0.5 - width / 2

  def rotate_image(image: Array, angle: Array) -> Array:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    i = jnp.floor(cos * y + sin * z + height / 2).astype(int)
    j = jnp.floor(cos * z - sin * y + width / 2).astype(int)
    inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
    return jnp.where(inside[..., None], image[i, j], 0)

  return jax.vmap(rotate_image)(x, jnp.deg2rad(degrees))
