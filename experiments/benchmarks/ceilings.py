"""The limits of this machine: the speed of a large product and a large copy.

The product is XLA's own of two square matrices in the dtype of the case, at
the precision that models have (on a GPU float32 may mean tf32, for both). The
copy is into allocated memory; it reads and writes each byte once. On a CPU it
is numpy's, with a thread for each core: XLA would allocate new pages each time.
"""

import os
from concurrent import futures
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.timing import Run

SIDE = {'cpu': 2048}  # of the matrices
SIDE_ELSEWHERE = 8192
COPIED = {'cpu': 2**27}  # bytes: more than any cache holds
COPIED_ELSEWHERE = 2**31


class Ceiling(NamedTuple):
  """A run at the limit of the machine."""

  run: Run
  amount: float  # FLOPs or bytes of one run


def make_ceilings(dtype: str) -> dict[str, Ceiling]:
  """Return the product and the copy, compiled and run once."""
  ceilings = {'product': _product(dtype), 'copy': _copy()}
  for ceiling in ceilings.values():
    ceiling.run()
  return ceilings


def _product(dtype: str) -> Ceiling:
  side = SIDE.get(jax.default_backend(), SIDE_ELSEWHERE)
  with jax.enable_x64(dtype == 'float64'):
    matrix = jax.random.normal(jax.random.key(0), (side, side), dtype)
    multiply = jax.jit(jnp.matmul).lower(matrix, matrix).compile()
  return Ceiling(
    lambda: multiply(matrix, matrix).block_until_ready(), 2 * side**3
  )


def _copy() -> Ceiling:
  size = COPIED.get(jax.default_backend(), COPIED_ELSEWHERE)
  if jax.default_backend() == 'cpu':
    return Ceiling(_host_copy(size), 2 * size)
  source = jnp.zeros(size, jnp.uint8)
  copy = jax.jit(jnp.copy)
  return Ceiling(lambda: copy(source).block_until_ready(), 2 * size)


def _host_copy(size: int) -> Run:
  cores = os.cpu_count() or 1
  sources = np.array_split(np.ones(size, np.uint8), cores)
  targets = np.array_split(np.zeros(size, np.uint8), cores)
  pool = futures.ThreadPoolExecutor(cores)
  return lambda: list(pool.map(np.copyto, targets, sources))
