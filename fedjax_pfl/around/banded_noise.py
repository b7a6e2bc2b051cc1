"""Privacy noise that takes back what earlier rounds added: bands.

  C    lower triangular, Toeplitz, b bands c_0 .. c_{b-1}, columns of norm 1
  c    ~  the first b coefficients of (1 - x)^(-1/2)
  y_t  =  (z_t - sum_{j=1}^{b-1} c_j y_{t-j}) / c_0      row t of C^{-1} Z

Z has independent normal rows z_t, and a run releases S + C^{-1} Z of its sums S
of rounds: as much as C S + Z tells. A model is about A S, the sum of all rounds
so far, and its error A C^{-1} Z is small for C near the root of A (Kalinin and
Lampert 2024; Choquette-Choo et al. 2023 optimise C instead).

A client in round t moves the rows t to t + b - 1 of C S, by c_j d: by |d| in
all. If it takes part at most once in b rounds, its rounds move disjoint rows,
and if each group of clients has every b-th round, drawn with probability p,
they cost as ceil(T / b) rounds of a Poisson cohort of rate p (Choquette-Choo et
al. 2023, theorem 4). One band is independent noise.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import PyTree


def coefficients(bands: int) -> np.ndarray:
  """Return c [b]."""
  factors = 1 - 0.5 / np.arange(1, bands)
  series = np.cumprod([1.0, *factors])
  return series / np.linalg.norm(series)


def begin(shapes: PyTree, bands: int) -> PyTree:
  """Return the noise [b - 1, ...] before round 0: y_{-1}, y_{-2}, .. are 0."""
  zeros = lambda leaf: jnp.zeros((bands - 1, *leaf.shape), leaf.dtype)
  return jax.tree.map(zeros, shapes)


def correlate(
  normal: PyTree, past: PyTree, bands: int
) -> tuple[PyTree, PyTree]:
  """Return y_t of z_t and y_{t-1}, y_{t-2}, ..; and the past of round t + 1."""
  c = coefficients(bands)
  known = trees.weighted_sum(past, jnp.asarray(c[1:], jnp.float32))
  noise = jax.tree.map(lambda z, old: (z - old) / c[0], normal, known)
  add = lambda y, rows: jnp.concatenate([y[None], rows[:-1]])
  return noise, jax.tree.map(add, noise, past)
