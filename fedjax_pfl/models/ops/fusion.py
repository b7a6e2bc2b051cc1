"""Parts of passes over memory; `one_pass` keeps one apart from its readers."""

from collections.abc import Sequence

from jax import lax

from fedjax_pfl.core.fusion import one_pass
from fedjax_pfl.core.types import Array


def combine(terms: Sequence[tuple[float, Array]]) -> Array:
  """Return sum_i c_i x_i; without terms of c_i = 0."""
  total = None
  for c, x in terms:
    if c == 0:
      continue
    x = x if abs(c) == 1 else x * abs(c)
    if total is None:
      total = x if c > 0 else -x
    else:
      total = total + x if c > 0 else total - x
  return total


def pad(x: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
  """Pad axes 1 and 2 of [C, H, W, B] with zeros; a negative number cuts."""
  edges = [(0, 0, 0), (*rows, 0), (*columns, 0), (0, 0, 0)]
  return lax.pad(x, lax.full((), 0, x.dtype), edges)


__all__ = ['combine', 'one_pass', 'pad']
