"""Run a function of images in blocks, so that its arrays stay in cache.

A convolution writes several times as much as it reads: patches, or tiles. Those
of a whole batch go to memory and back; those of a few images stay in the cache
of a core. A sum over blocks differs from that over the batch by rounding.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedjax_pfl.core.target import target
from fedjax_pfl.models.ops.passes import by_hand

PyTree = Any
CACHE = 7 * 2**18  # bytes: most of the 2 MiB beside a core


def block_size(images: int, bytes_each: int, bytes_shared: int = 0) -> int:
  """Return how many images a block has: a divisor of their number.

  What all blocks read, such as a kernel, should be less than half of what a
  block writes: each reads it again. A batch of two blocks is one. Not on an
  accelerator: no cache holds a block there, and a loop launches more kernels.
  """
  fit = max(CACHE, 2 * bytes_shared) // bytes_each
  if target() != 'cpu' or images <= 2 * fit:
    return images
  return max(n for n in range(1, max(fit, 1) + 1) if images % n == 0)


def over_blocks(
  f: Callable[..., tuple[PyTree, PyTree]], block: int, *arrays: PyTree
) -> tuple[PyTree, PyTree]:
  """Return (sum, rows) of f(*blocks of rows) -> (summand, rows)."""
  if block == len(arrays[0]):
    return f(*arrays)
  some = jax.tree.map(lambda x: x[:block], arrays)
  zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(f, *some)[0])

  def step(total, *parts):
    summand, rows = f(*parts)
    return jax.tree.map(jnp.add, total, summand), rows

  return in_turn(step, block, zeros, arrays)


def in_turn(
  f: Callable[..., tuple[PyTree, PyTree]],
  block: int,
  kept: PyTree,
  arrays: tuple[PyTree, ...],
  in_place: bool = False,
) -> tuple[PyTree, PyTree]:
  """Return (kept, rows) of f(kept, *blocks of rows) -> (kept, rows).

  What f keeps of a block is for the next one. With `in_place` the first result
  has the shape of the first array and takes its memory; right for an array that
  nobody reads again (else XLA copies it). The memory of the others is filled
  before, because XLA for a CPU has no other; not with zeros, of which XLA would
  fill one array for all loops and copy it for each.

  Slices of a loop, not a scan over blocks: under a client axis XLA copies what
  is scanned, to have the blocks first.
  """
  number = len(jax.tree.leaves(arrays)[0]) // block

  def part(x, i):
    return lax.dynamic_slice_in_dim(x, i * block, block)

  def put(x, rows, i):
    return lax.dynamic_update_slice_in_dim(x, rows, i * block, 0)

  first = jax.tree.map(lambda x: x[:block], arrays)
  fill = jax.tree.leaves(arrays)[0].reshape(-1)[0]
  rows = jax.tree.map(
    lambda x: jnp.full((number * block, *x.shape[1:]), fill.astype(x.dtype)),
    jax.eval_shape(f, kept, *first)[1],
  )
  rows, treedef = jax.tree.flatten(rows)
  if in_place:
    rows[0] = arrays[0]

  def step(i, carry):
    kept, rows = carry
    now = (rows[0], *arrays[1:]) if in_place else arrays
    kept, new = f(kept, *jax.tree.map(lambda x: part(x, i), now))
    new = jax.tree.leaves(new)
    return kept, [put(x, rows, i) for x, rows in zip(rows, new, strict=True)]

  kept, rows = lax.fori_loop(0, number, step, (kept, rows))
  return kept, jax.tree.unflatten(treedef, rows)


def in_blocks(
  f: Callable[[Array, PyTree], Array], block: int, x: Array, params: PyTree
) -> Array:
  """Return f(x, params), whose rows belong to those of x, block after block.

  For the gradient f is computed again, so that no block leaves the cache.
  """
  if block == len(x):
    return f(x, params)
  return _rematerialised(f, block, x, params)


@by_hand(0, 1)
def _rematerialised(f, block, x, params):
  rows = over_blocks(lambda x: ((), f(x, params)), block, x)[1]
  return rows, (x, params)


@_rematerialised.gradient
def _of_rows(f, block, saved, dy):
  x, params = saved

  def differentiate(x, dy):
    return jax.vjp(f, x, params)[1](dy)[::-1]

  return over_blocks(differentiate, block, x, dy)[::-1]
