"""The images of all clients, as a device holds them: one row of bytes an image.

An accelerator stores an array in tiles, whose layout suits the arithmetic of
its last axes. For `[P, 32, 32, 3]` bytes, XLA copied the whole pool into
another layout in every round of a TPU's program: 768 MB of traffic, 586 MiB of
memory. `[P, 3072]` is read as it lies, and a batch is reshaped after it was
gathered. A CPU reads either.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array


@jax.tree_util.register_pytree_node_class
class ImagePool:
  """Images [P, *shape] as rows [P, n]; it is indexed as the images would be."""

  def __init__(self, rows: Array, image_shape: tuple[int, ...]):
    self.rows = rows
    self.image_shape = image_shape

  @property
  def shape(self) -> tuple[int, ...]:
    return (*self.rows.shape[:1], *self.image_shape)

  @property
  def dtype(self) -> Any:
    return self.rows.dtype

  @property
  def ndim(self) -> int:
    return len(self.shape)

  def __len__(self) -> int:
    return self.rows.shape[0]

  def __getitem__(self, index: Array | slice) -> Array:
    """Return the images of these rows, [..., *shape]."""
    rows = self.rows[index]
    return rows.reshape(*rows.shape[:-1], *self.image_shape)

  def tree_flatten(self) -> tuple:
    return (self.rows,), self.image_shape

  @classmethod
  def tree_unflatten(cls, image_shape: tuple, leaves: tuple) -> 'ImagePool':
    return cls(*leaves, image_shape)


def pool_of(images: np.ndarray | Array | ImagePool) -> Array | ImagePool:
  """Return the images [P, H, W, ch] on the device, as suits the target."""
  if isinstance(images, ImagePool) or target() == 'cpu':
    return images if isinstance(images, ImagePool) else jnp.asarray(images)
  rows = images.reshape(len(images), -1)
  return ImagePool(jnp.asarray(rows), images.shape[1:])
