"""Robust means: what a server takes from changes of which f may be lies.

  d_1 .. d_n   the changes of a round;   |.| over all leaves of a change

Of each number alone, in order x_(1) <= .. <= x_(n):
  median              x in the middle, or the mean of two    (Yin et al. 2018)
  trimmed_mean        mean of x_(f+1) .. x_(n-f)             (Yin et al. 2018)
  mean_around_median  mean of the n - f next to the median   (Xie et al. 2018)
Of whole changes, sum_i s_i d_i:
  geometric_median  s_i ~ 1 / max(nu, |d_i - z|), z <- sum_i s_i d_i, 32 times
                    from 0 on                          (Pillutla et al. 2022)
  krum              the d_i with the least mean of |d_i - d_j|^2 over the
                    n - f - 1 next to it               (Blanchard et al. 2017)
  multi_krum        mean of the n - f with the least of these means
  mda               mean of the n - f whose largest |d_i - d_j| is the least
                                                       (El Mhamdi et al. 2018)
  monna             mean of the n - f next to that of a trusted client
                                                    (Farhadkhani et al. 2023)
  centred_clipping  v <- v + 1/n sum_i min(1, r / |d_i - v|) (d_i - v), 3 times
                    from 0 on                       (Karimireddy et al. 2021)
  caf               c_i <- c_i (1 - t_i / max_j t_j) from 1 until sum_i c_i is
                    n - 2 f or less; t_i = <d_i - m, u>^2, u the first axis and
                    m the mean of weights c: m of the least variance along u
                                                        (Allouah et al. 2025)
Before, each change may be replaced by one of sum_j A_ij d_j:
  mixing             mean of the n - f next to d_i      (Allouah et al. 2023)
  bucketing          means of two, drawn             (Karimireddy et al. 2022)
  clipping           min(1, r / |d_i|) d_i
  adaptive_clipping  the same: r is that of the largest after the first
                     floor(2 f (n - f) / n)             (Allouah et al. 2024)

r is by default the median of the norms |d_i|, nu a thousandth of that. Rules of
whole changes know their products <d_i, d_j> alone: they cost one product [C, C]
and one sum. A change that is not finite counts as not sent, as every server can
see; of equal ones the first row is taken; f is at most (n - 1) / 2.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array, Key, PyTree, matmul

STEPS, CLIPS = 32, 3  # of the geometric median, and of centred clipping
TINY = 1e-30


class Known(NamedTuple):
  """What a rule knows of the changes of a round."""

  products: Array  # [C, C] <d_i, d_j>, 0 of those that are not there
  there: Array  # [C] bool
  liars: Array | int  # f, as set
  trusted: Array  # [C] True of the client whom monna trusts
  radius: float = 0.0  # r; 0: the median of the norms

  @property
  def number(self) -> Array:
    return jnp.sum(self.there)

  @property
  def kept(self) -> Array:
    """Return n - f."""
    most = jnp.maximum(self.number - 1, 0) // 2
    return self.number - jnp.minimum(self.liars, most)

  @property
  def norms(self) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(self.products), 0))

  def radius_of(self) -> Array | float:
    norms = self.norms[:, None]
    return self.radius or mean_of(norms, of_median(norms, self))[0]

  def clipped(self, radius: Array | float, norms: Array) -> Array:
    return self.there * jnp.minimum(1, radius / jnp.maximum(norms, TINY))


# ---- of each number alone ----------------------------------------------------


def ranks(x: Array, there: Array) -> Array:
  """Return how many of the rows that are there come before each: [C, ...].

  C passes over the rows: to sort them took eight times as long on a CPU.
  """
  rows = jnp.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1))

  def add(row, total):
    other = lax.dynamic_index_in_dim(x, row)
    is_before = jnp.where(row < rows, other <= x, other < x)
    return total + (is_before & there[row])

  return lax.fori_loop(0, len(x), add, jnp.zeros(x.shape, jnp.int32))


def in_the_middle(x: Array, known: Known, left: Array | None = None) -> Array:
  """Return which are neither of the `left` least nor of as many largest."""
  left = known.number - known.kept if left is None else left
  order = ranks(x, known.there)
  is_kept = (order >= left) & (order < known.number - left)
  return is_kept & known.there[:, None]


def of_median(x: Array, known: Known) -> Array:
  return in_the_middle(x, known, jnp.maximum(known.number - 1, 0) // 2)


def around_median(x: Array, known: Known) -> Array:
  away = jnp.abs(x - mean_of(x, of_median(x, known)))
  return (ranks(away, known.there) < known.kept) & known.there[:, None]


def mean_of(x: Array, is_kept: Array) -> Array:
  return jnp.sum(jnp.where(is_kept, x, 0), 0) / jnp.maximum(is_kept.sum(0), 1)


def of_numbers(
  keep: Callable, rows: PyTree, known: Known
) -> tuple[PyTree, Array]:
  """Return the means of the numbers that are kept, and the part of each row.

  keep: (x [C, B], known) -> bool [C, B]. It is called for block after block of
  a leaf: passes over a block stay in the cache.
  """
  size = 2**18 if target() == 'cpu' else 2**26  # numbers of a block

  def of_block(x):
    is_kept = keep(x, known)
    return mean_of(x, is_kept), jnp.sum(is_kept, 1)

  def of_leaf(leaf):
    number = -(-leaf.size // size)
    rows = leaf.reshape(len(leaf), -1)
    rows = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % number)))
    blocks = rows.reshape(len(leaf), number, -1).swapaxes(0, 1)
    means, counts = lax.map(of_block, blocks)
    means = means.ravel()[: leaf[0].size].reshape(leaf.shape[1:])
    return means, counts.sum(0)

  leaves, structure = jax.tree.flatten(rows)
  means, counts = zip(*map(of_leaf, leaves), strict=True)
  parts = sum(counts)
  return structure.unflatten(means), parts / jnp.maximum(jnp.sum(parts), 1)


# ---- of whole changes: known -> s [C] ----------------------------------------


def distances(known: Known) -> Array:
  """Return |d_i - d_j|^2 [C, C]; infinite where one is not there."""
  products, there = known.products, known.there
  squares = jnp.diagonal(products)
  apart = jnp.maximum(squares[:, None] + squares - 2 * products, 0)
  apart = jnp.where(jnp.eye(len(there), dtype=bool), 0, apart)
  return jnp.where(there[:, None] & there, apart, jnp.inf)


def from_sum(known: Known, scale: Array) -> Array:
  """Return |d_i - sum_j s_j d_j| [C]."""
  inner = matmul(known.products, scale)
  square = known.norms**2 - 2 * inner + matmul(scale, inner)
  return jnp.sqrt(jnp.maximum(square, TINY))


def shares(is_kept: Array) -> Array:
  return is_kept / jnp.maximum(jnp.sum(is_kept), 1)


def nearest(values: Array, known: Known) -> Array:
  """Return the mean of the n - f with the least values."""
  is_kept = ranks(values, known.there) < known.kept
  return shares(is_kept & known.there)


def geometric_median(
  known: Known, nu: Array | float | None = None, steps: int = STEPS
) -> Array:
  nu = 1e-3 * known.radius_of() if nu is None else nu

  def step(_, scale):
    near = known.there / jnp.maximum(from_sum(known, scale), nu)
    return near / jnp.maximum(jnp.sum(near), TINY)

  return lax.fori_loop(0, steps, step, jnp.zeros_like(known.norms))


def krum_scores(known: Known) -> Array:
  rank, near = jnp.arange(len(known.there)), jnp.sort(distances(known), 1)
  near = jnp.where((rank > 0) & (rank < known.kept), near, 0)
  return jnp.where(known.there, jnp.sum(near, 1), jnp.inf)


def krum(known: Known) -> Array:
  best = jnp.argmin(krum_scores(known))
  return shares((jnp.arange(len(known.there)) == best) & known.there)


def multi_krum(known: Known) -> Array:
  return nearest(krum_scores(known), known)


def monna(known: Known) -> Array:
  # Of a trusted client that has not sent, d is 0.
  pivot = (known.trusted & known.there).astype(known.products.dtype)
  return nearest(from_sum(known, pivot), known)


def mda(known: Known) -> Array:
  size = len(known.there)
  subsets = itertools.combinations(range(size), size - known.liars)
  subsets = jnp.asarray([*subsets])
  apart = distances(known)
  # To leave out who is not there would make no set smaller.
  apart = jnp.where(jnp.isfinite(apart), apart, 0)
  diameter = lambda subset: jnp.max(apart[subset][:, subset])
  diameters = lax.map(diameter, subsets, batch_size=1024)
  best = subsets[jnp.argmin(diameters)]
  return shares(jnp.zeros(size, bool).at[best].set(True) & known.there)


def centred_clipping(known: Known, steps: int = CLIPS) -> Array:
  radius, number = known.radius_of(), jnp.maximum(known.number, 1)

  def step(_, scale):
    factor = known.clipped(radius, from_sum(known, scale)) / number
    return scale * (1 - jnp.sum(factor)) + factor

  return lax.fori_loop(0, steps, step, jnp.zeros_like(known.norms))


def caf(known: Known) -> Array:
  products, there = known.products, known.there
  products = products / jnp.maximum(jnp.max(known.norms) ** 2, TINY)

  def is_left(state):
    c, _, _, moves = state
    return (jnp.sum(c) > 2 * known.kept - known.number) & moves

  def step(state):
    c, best, variance, _ = state
    scale = c / jnp.sum(c)
    # Products with d_i - m on both sides.
    left = products - matmul(scale, products)
    inner = left - matmul(left, scale)[:, None]
    root = jnp.sqrt(scale)
    values, axes = jnp.linalg.eigh(root[:, None] * inner * root)
    is_best = values[-1] < variance
    best = jnp.where(is_best, scale, best)
    along = jnp.where(there, jnp.abs(matmul(inner, root * axes[:, -1])), 0)
    most = jnp.max(along)
    # All are equal where there is no axis.
    after = c * jnp.where(most > 0, 1 - (along / most) ** 2, 0)
    # Where who is out is far away, nobody else would ever be taken out.
    moves = jnp.sum(after) < 0.999 * jnp.sum(c)
    return after, best, jnp.where(is_best, values[-1], variance), moves

  infinite = jnp.asarray(jnp.inf, products.dtype)
  weights = there.astype(products.dtype)
  start = weights, shares(there), infinite, jnp.array(True)
  return lax.while_loop(is_left, step, start)[1]


# ---- before them: known -> A [C, C], or of buckets [M, C] --------------------


def mixing(known: Known) -> Array:
  rows = jax.vmap(lambda apart: nearest(apart, known))(distances(known))
  return rows * known.there[:, None]


def bucketing(known: Known, order: Array, size: int = 2) -> Array:
  """Return the means of changes in this order [C], `size` each."""
  number, there = -(-len(order) // size), known.there
  turn = jnp.zeros(len(order), int).at[order].set(jnp.cumsum(there[order]) - 1)
  is_in = (jnp.arange(number)[:, None] == turn // size) & there
  return jax.vmap(shares)(is_in)


def clipping(known: Known) -> Array:
  return jnp.diag(known.clipped(known.radius_of(), known.norms))


def adaptive_clipping(known: Known) -> Array:
  number, liars = known.number, known.number - known.kept
  rank = number - 1 - 2 * liars * known.kept // jnp.maximum(number, 1)
  is_next = (ranks(known.norms, known.there) == rank) & known.there
  radius = jnp.sum(jnp.where(is_next, known.norms, 0))
  return jnp.diag(known.clipped(radius, known.norms))


# ---- all of them, by name ----------------------------------------------------

OF_NUMBERS = {
  'median': of_median,
  'trimmed_mean': in_the_middle,
  'mean_around_median': around_median,
}
OF_CHANGES = {
  rule.__name__: rule
  for rule in (geometric_median, krum, multi_krum, mda, monna)
  + (centred_clipping, caf)
}
RULES = (*OF_NUMBERS, *OF_CHANGES)
BEFORE = {
  rule.__name__: rule
  for rule in (mixing, bucketing, clipping, adaptive_clipping)
}


def robust_mean(
  rule: Callable | str,
  changes: PyTree,
  known: Known,
  before: Sequence[str],
  rng: Key,
) -> tuple[PyTree, Array]:
  """Return what a rule makes of changes [C, ...], and the part of each [C].

  `known` is without products. rule: a name, or a function known -> s [C].
  """
  there = known.there & jnp.isfinite(
    trees.row_norms(changes, known.there.shape) ** 2
  )
  changes = jax.vmap(trees.choose)(there, changes, trees.zeros(changes))
  known, mixed = known._replace(there=there), None
  if before or rule not in OF_NUMBERS:
    known = known._replace(products=trees.products(changes))
  for name in before:
    order = [jax.random.permutation(rng, len(there))] * (name == 'bucketing')
    matrix = BEFORE[name](known, *order).astype(known.products.dtype)
    products = matmul(matmul(matrix, known.products), matrix.T)
    known = known._replace(products=products, there=jnp.any(matrix > 0, 1))
    mixed = matrix if mixed is None else matmul(matrix, mixed)
  if rule in OF_NUMBERS:
    rows = changes if mixed is None else trees.mixed(changes, mixed)
    mean, parts = of_numbers(OF_NUMBERS[rule], rows, known)
    return mean, parts if mixed is None else matmul(parts, mixed)
  scale = OF_CHANGES.get(rule, rule)(known)
  scale = scale if mixed is None else matmul(scale, mixed)
  return trees.weighted_sum(changes, scale), scale
