"""Normal numbers whose tails are right, for noise that bounds a delta.

  z = (g_1 + g_2 + g_3 + g_4) / 2,   g = sqrt(-2 ln u) cos(2 pi v)

`jax.random.normal` inverts a number of 23 bits: it ends at 5.4 deviations on
one side and at 5.2 on the other, beyond which lie 1e-7 of a normal
distribution, for each of the numbers of a model. Here u has 64 bits, and full
relative precision near 0 and near 1: one g ends at 9.5, and z at 19.

Floats are no real numbers. Which of them a sum plus noise can be depends on the
sum (Mironov 2012); a sum of four draws hides that from all known attacks
(Holohan and Braghin 2021), but no theorem covers rounding.
"""

import math

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, Key, PyTree

TERMS = 4


def noise_like(key: Key, tree: PyTree) -> PyTree:
  """Return independent normal numbers in the places of those of the tree."""
  structure = jax.tree.structure(tree)
  keys = structure.unflatten(jax.random.split(key, structure.num_leaves))
  draw = lambda own, leaf: normal(own, leaf.shape, leaf.dtype)
  return jax.tree.map(draw, keys, tree)


def normal(key: Key, shape: tuple = (), dtype=jnp.float32) -> Array:
  """Return independent normal numbers z of this shape."""
  size = math.prod(shape)
  words = jax.random.bits(key, (TERMS, 3, -(-size // 2)), jnp.uint32)
  radius = radius_of(words[:, 0], words[:, 1], dtype)
  angle = 2 * jnp.pi * words[:, 2].astype(dtype) / 2.0**32
  pairs = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
  z = pairs.sum(1) / TERMS**0.5
  return z.ravel()[:size].reshape(shape)


def radius_of(high: Array, low: Array, dtype=jnp.float32) -> Array:
  """Return sqrt(-2 ln u) of u = (high + low / 2^32) / 2^32, plus half a bit."""

  def share(high, low):
    return high.astype(dtype) / 2.0**32 + (low.astype(dtype) + 0.5) / 2.0**64

  near_0 = high < jnp.uint32(2**31)
  # Near 1 the logarithm needs 1 - u, which is exact in the other bits.
  small = jnp.where(near_0, share(high, low), share(~high, ~low))
  return jnp.sqrt(-2 * jnp.where(near_0, jnp.log(small), jnp.log1p(-small)))
