"""Parts of passes over memory, and gradients that are written by hand.

Products name the axes of a transposed operand: under a client axis XLA copies
`b.T` before it multiplies. With the copies a step on one core takes longer: the
4convNet 1.12 (batch 50), FedAvgCNN 1.14 and 1.08 (batch 10 and 50).
"""

import functools
import operator
from collections.abc import Callable, Iterable

import jax
from jax import Array, lax
from jax.lax import PrecisionLike

SOME = 8  # lines at most, that are added up where they are read


def by_hand(*static: int) -> Callable:
  """Decorate f, which returns (z, saved): a function of z, with f.gradient.

  That decorates (*static arguments, saved, dz) -> the gradients of the others.
  """

  def decorate(f):
    @functools.partial(jax.custom_vjp, nondiff_argnums=static)
    @functools.wraps(f)
    def value(*args):
      return f(*args)[0]

    value.gradient = functools.partial(value.defvjp, f)
    return value

  return decorate


def add_all(terms: Iterable[Array]) -> Array:
  """Return the sum of the terms, from the first one on."""
  return functools.reduce(operator.add, terms)


def add_some(x: Array, axis: int) -> Array:
  """Return x with every 2 to 8 lines of an axis added up, if they divide it."""
  size = x.shape[axis]
  step = max(n for n in range(1, SOME + 1) if size % n == 0)
  return add_all(lax.slice_in_dim(x, i, size, step, axis) for i in range(step))


def pad(x: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
  """Pad axes 1 and 2 of four with zeros; a negative number cuts."""
  edges = [(0, 0, 0), (*rows, 0), (*columns, 0), (0, 0, 0)]
  return lax.pad(x, lax.full((), 0, x.dtype), edges)


def taps_of(x: Array, size: tuple[int, int], stride: int = 1) -> list[Array]:
  """Return padded images as each tap of a kernel sees them, on axes 1 and 2."""
  high, broad = x.shape[1] - size[0] + 1, x.shape[2] - size[1] + 1
  return [
    x[:, u : u + high : stride, v : v + broad : stride]
    for u in range(size[0]) for v in range(size[1])
  ]  # fmt: skip


def times_transposed(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a b^T."""
  return lax.dot_general(a, b, (((1,), (1,)), ((), ())), precision=precision)


def transposed_times(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a^T b."""
  return lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=precision)
