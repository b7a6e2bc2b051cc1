"""Compute on the host in the midst of a compiled program.

JAX hands the arguments of a callback over as arrays. It copies those of more
than 100 KiB in a thread of its own, and all threads of a CPU that is divided
into devices may be waiting for the callback's result: the program never ends.
Arguments are therefore passed in blocks of rows, which are copied at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core.types import Array

BLOCK = 64 * 1024  # bytes


def call_on_host(fn: Callable, result: Any, *arrays: Array) -> Any:
  """Return fn(*arrays), which the host computes from numpy arrays.

  Args:
    fn: a pure function of numpy arrays.
    result: its shapes and types, as those of `jax.pure_callback`.
    *arrays: of at least one dimension.
  """

  def on_host(*arguments):
    return fn(*(np.concatenate(list(map(np.asarray, a))) for a in arguments))

  return jax.pure_callback(on_host, result, *map(_blocks, arrays))


def _blocks(array: Array) -> list[Array]:
  """Return all rows of the array, in blocks of at most BLOCK bytes."""
  row = array.dtype.itemsize * array[:1].size
  rows = max(1, BLOCK // max(1, row))
  return [
    array[first : first + rows] for first in range(0, max(1, len(array)), rows)
  ]
