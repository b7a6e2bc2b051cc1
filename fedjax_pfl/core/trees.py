"""Split, join, average and index parameter trees.

A part of a tree is the tree with None in the other places. None has no leaf: it
takes no memory, is not transmitted and cannot be averaged by mistake.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import partial_eval

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array, Mask, PyTree, Task, matmul

PARTS = ('full', 'body', 'head')


def leaf_names(tree: PyTree) -> list[str]:
  """Return the path of every leaf, such as 'conv1/kernel', in leaf order."""
  return [leaf_name(path) for path, _ in jax.tree.leaves_with_path(tree)]


def named(tree: PyTree) -> dict[str, Any]:
  """Return the leaves by their paths."""
  return dict(zip(leaf_names(tree), jax.tree.leaves(tree), strict=True))


def path_mask(
  tree: PyTree, matches: Callable[[str], bool], field: str = 'mask'
) -> Mask:
  """Return True for the leaves whose path matches: some, but not all."""
  is_hit = lambda path, _: bool(matches(leaf_name(path)))
  mask = jax.tree.map_with_path(is_hit, tree)
  hits = jax.tree.leaves(mask)
  if all(hits) or not any(hits):
    raise bad_input(
      field,
      got=f'{sum(hits)} of {len(hits)} leaves selected',
      expected='a mask that selects some leaves but not all',
      choices=leaf_names(tree),
      cause='a layer with another name than the mask expects '
      '(is the last layer called "head"?)',
    )
  return mask


def layer_mask(tree: PyTree, layers: Collection[str]) -> Mask:
  """Return True for the leaves of these layers, the names at the top."""
  is_in = lambda path, _: leaf_name(path[:1]) in layers
  return jax.tree.map_with_path(is_in, tree)


def invert(mask: Mask) -> Mask:
  """Return the mask of the leaves that `mask` leaves out."""
  return jax.tree.map(lambda selected: not selected, mask)


def part_mask(task: Task, part: str, field: str = 'part') -> Mask:
  """Return the mask of 'full', 'body', 'head', or layers: 'conv1+bn1'."""
  full = jax.tree.map(lambda _: True, task.is_head)
  masks = full, invert(task.is_head), task.is_head
  if part in PARTS:
    mask = dict(zip(PARTS, masks, strict=True))[part]
    if any(jax.tree.leaves(mask)):
      return mask
    raise bad_input(
      field,
      got=part,
      expected='a part that is trained: the model is a head alone',
      choices=['full', 'head'],
    )
  layers = part.split('+')
  known = [name.split('/')[0] for name in leaf_names(task.is_head)]
  for layer in layers:
    if layer not in known:
      raise bad_input(
        field,
        got=layer,
        expected="a part of the model, or names of its layers joined by '+'",
        choices=dict.fromkeys((*PARTS, *known)),
      )
  return layer_mask(task.is_head, layers)


def select(tree: PyTree, mask: Mask) -> PyTree:
  """Return the part of the tree under the mask; the rest becomes None."""
  return jax.tree.map(lambda keep, leaf: leaf if keep else None, mask, tree)


def combine(first: PyTree, second: PyTree) -> PyTree:
  """Return the first part with its None replaced by the second part."""
  fill = lambda a, b: b if a is None else a
  return jax.tree.map(fill, first, second, is_leaf=lambda leaf: leaf is None)


def weighted_mean(stacked: PyTree, weights: Array, shares: int = 1) -> PyTree:
  """Return sum_c a_c x_c / sum_c a_c over the leading axis of every leaf."""
  return weighted_sum(stacked, weights / jnp.sum(weights), shares)


def weighted_sum(stacked: PyTree, scale: Array, shares: int = 1) -> PyTree:
  """Return sum_c s_c x_c over the leading axis of every leaf.

  On a CPU row after row: XLA's reduction over the first axis took 40 to 400
  times as long. Elsewhere one reduction; not a matrix product, whose inputs
  accelerators round. `shares`: devices, each of which adds up its own rows.
  """
  if target() == 'cpu':
    return _sum_of_rows(stacked, scale, shares)

  def total(leaf):
    s = scale.astype(leaf.dtype).reshape((-1,) + (1,) * (leaf.ndim - 1))
    return jnp.sum(s * leaf, axis=0)

  return jax.tree.map(total, stacked)


def _sum_of_rows(stacked, scale, shares):
  """Return the sums in the order of the rows: one loop for all leaves."""
  turns = -(-len(scale) // shares)

  def divide(rows):
    rows = jnp.asarray(rows)
    if missing := shares * turns - len(rows):
      rows = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
    return rows.reshape(shares, turns, *rows.shape[1:])

  stacked, scale = jax.tree.map(divide, stacked), divide(scale)

  def row(leaf, turn):
    return lax.dynamic_index_in_dim(leaf, turn, 1, keepdims=False)

  def scaled(turn):
    s = row(scale, turn)

    def times(leaf):
      factor = lax.expand_dims(s.astype(leaf.dtype), range(1, leaf.ndim - 1))
      return factor * row(leaf, turn)

    return jax.tree.map(times, stacked)

  def add_row(turn, totals):
    return jax.tree.map(lax.add, totals, scaled(turn))

  totals = lax.fori_loop(1, turns, add_row, scaled(0))
  return jax.tree.map(lambda total: jnp.sum(total, axis=0), totals)


def row_norms(stacked: PyTree, size: tuple[int, ...]) -> Array:
  """Return |x_c| of every row [C], over all leaves together; size: (C,)."""
  total = jnp.zeros(size)
  for leaf in jax.tree.leaves(stacked):
    total += jnp.sum(jnp.square(leaf), axis=tuple(range(1, leaf.ndim)))
  return jnp.sqrt(total)


def products(stacked: PyTree) -> Array:
  """Return <x_c, x_d> of rows [C, ...], over all leaves together: [C, C]."""
  leaves = jax.tree.leaves(stacked)
  rows = [leaf.reshape(len(leaf), -1) for leaf in leaves]
  return sum(matmul(row, row.T) for row in rows)


def mixed(stacked: PyTree, weights: Array) -> PyTree:
  """Return sum_c a_kc x_c for weights [K, C] and rows [C, ...]: [K, ...]."""

  def mix(leaf):
    w = weights.astype(leaf.dtype)
    return jnp.einsum('kc,c...->k...', w, leaf, precision='highest')

  return jax.tree.map(mix, stacked)


def segment_mean(
  stacked: PyTree, weights: Array, segments: Array, otherwise: PyTree
) -> PyTree:
  """Return the weighted means of the rows [C, ...] of every segment: [M, ...].

    out_m = sum_{c in m} a_c x_c / sum_{c in m} a_c

  Row c belongs to segment segments[c]. A segment without weight is taken
  from `otherwise`, whose leaves are [M, ...].
  """
  num_segments = jax.tree.leaves(otherwise)[0].shape[0]
  total = jax.ops.segment_sum(weights, segments, num_segments)  # [M]
  share = weights / jnp.maximum(total, 1e-30)[segments]  # [C]

  def mean(leaf, other):
    rows = (-1,) + (1,) * (leaf.ndim - 1)
    scaled = share.astype(leaf.dtype).reshape(rows) * leaf
    means = jax.ops.segment_sum(scaled, segments, num_segments)
    return jnp.where((total > 0).reshape(rows), means, other)

  return jax.tree.map(mean, stacked, otherwise)


def choose(condition: Array, first: PyTree, second: PyTree) -> PyTree:
  """Return the first tree where the condition holds, else the second."""
  return jax.tree.map(partial(jnp.where, condition), first, second)


def zeros(tree: PyTree) -> PyTree:
  """Return zeros in the shapes of a tree, or of one of shapes."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)


def gather(stacked: PyTree, index: Array) -> PyTree:
  """Return the rows `index` of every leaf."""
  return jax.tree.map(lambda leaf: leaf[index], stacked)


def stack(rows: Sequence[PyTree]) -> PyTree:
  """Return trees as one, with an axis for them in every leaf."""
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def repeated(tree: PyTree, number: int) -> PyTree:
  """Return the tree so many times, with an axis for it in every leaf."""
  repeat = lambda leaf: jnp.broadcast_to(leaf, (number, *leaf.shape))
  return jax.tree.map(repeat, tree)


def scatter(stacked: PyTree, index: Array, rows: PyTree) -> PyTree:
  """Return the tree with the rows `index` of every leaf replaced."""
  return jax.tree.map(lambda leaf, row: leaf.at[index].set(row), stacked, rows)


def num_bytes(tree: PyTree) -> int:
  """Return the bytes of all leaves."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def kinds(tree: PyTree) -> tuple:
  """Return structure, shapes and dtypes of a tree, for comparison."""
  leaves, structure = jax.tree.flatten(tree)
  return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def is_traced(tree: PyTree) -> bool:
  """Return whether a leaf is a tracer, as inside jit."""
  leaves = jax.tree.leaves(tree)
  return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def reads(fn: Callable, *args: PyTree) -> list[bool]:
  """Return of each argument whether what the function returns depends on it."""
  program = jax.make_jaxpr(fn)(*args).jaxpr
  _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
  ends = np.cumsum([len(jax.tree.leaves(arg)) for arg in args])
  return [any(part) for part in np.split(used, ends[:-1])]


def leaf_name(path: tuple) -> str:
  """Return a path of JAX as a name, such as 'conv1/kernel'."""
  return jax.tree_util.keystr(path, simple=True, separator='/')


def all_finite(tree: PyTree) -> Array:
  """Return whether all numbers of a tree are finite: []."""
  finite = jnp.array(True)
  for leaf in jax.tree.leaves(tree):
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      finite &= jnp.isfinite(leaf).all()
  return finite
