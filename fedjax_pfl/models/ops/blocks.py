"""Run a function of images in blocks, so that its arrays stay in cache.

A convolution writes several times as much as it reads: patches, or tiles. Those
of a whole batch go to memory and back; those of a few images stay in the cache
of a core. A sum over blocks differs from that over the batch by rounding.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array, PyTree

CACHE = 7 * 2**18  # bytes: most of the 2 MiB beside a core


def block_size(images: int, bytes_each: int, bytes_shared: int = 0) -> int:
  """Return how many images a block has: a divisor of their number.

  What all blocks read, such as a kernel, should be less than half of what a
  block writes: each reads it again. A batch of two blocks is one.

  >>> block_size(50, 2**18), block_size(50, 2**18, 2**23), block_size(10, 2**18)
  (5, 50, 10)
  """
  fit = max(CACHE, 2 * bytes_shared) // bytes_each
  if images <= 2 * fit:
    return images
  return max(n for n in range(1, max(fit, 1) + 1) if images % n == 0)


def over_blocks(
  f: Callable[..., tuple[PyTree, Array]], block: int, *arrays: Array
) -> tuple[PyTree, Array]:
  """Return (sum, rows) of f(*blocks of rows) -> (summand, rows)."""
  images = len(arrays[0])
  if block == images:
    return f(*arrays)
  parts = [x.reshape(-1, block, *x.shape[1:]) for x in arrays]
  summand = jax.eval_shape(f, *(x[0] for x in parts))[0]
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), summand)

  def step(total, part):
    summand, rows = f(*part)
    return jax.tree.map(jnp.add, total, summand), rows

  total, rows = lax.scan(step, zeros, parts)
  return total, rows.reshape(images, *rows.shape[2:])


def in_blocks(
  f: Callable[[Array, PyTree], Array], block: int, x: Array, params: PyTree
) -> Array:
  """Return f(x, params), whose rows belong to those of x, block after block.

  For the gradient f is computed again, so that no block leaves the cache.
  """
  if block == len(x):
    return f(x, params)
  return _rematerialised(f, block, x, params)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rematerialised(f, block, x, params):
  return over_blocks(lambda x: ((), f(x, params)), block, x)[1]


def _forward(f, block, x, params):
  return _rematerialised(f, block, x, params), (x, params)


def _backward(f, block, saved, dy):
  x, params = saved

  def differentiate(x, dy):
    return jax.vjp(f, x, params)[1](dy)[::-1]

  return over_blocks(differentiate, block, x, dy)[::-1]


_rematerialised.defvjp(_forward, _backward)
