"""Running statistics of BatchNorm: leaves of a model that are not learned.

With the setting `norm_statistics` 'running' each BatchNorm has two leaves more,
of these names. A gradient of a model's loss holds in their places

  running_mean - mean of the batch,    running_var - its unbiased variance

so that r <- r - 0.1 g is PyTorch's average; with 'frozen', which normalises by
them in training, too, it holds 0. Leaves are known by their names, in
any tree that contains models. Of a tree without them the functions of this file
return what they were given.
"""

import jax

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, Mask, PyTree

MEAN, VAR = 'running_mean', 'running_var'
MOMENTUM = 0.1  # of the average: what a new batch weighs, as in PyTorch
FROZEN = 'frozen'
AUTO = 'auto'  # in a config: one of the others, by the data
NORM_STATISTICS = ('batch', 'running', 'running_local', FROZEN)


def mask(tree: PyTree) -> Mask:
  """Return True for running statistics, False for what is learned."""
  return jax.tree.map_with_path(
    lambda path, _: trees.leaf_name(path[-1:]) in (MEAN, VAR), tree
  )


def learned(tree: PyTree) -> PyTree:
  """Return the tree with holes in place of its running statistics."""
  return trees.select(tree, trees.invert(mask(tree)))


def taken_from(source: PyTree, tree: PyTree) -> PyTree:
  """Return the tree with the running statistics of `source`."""
  return trees.combine(trees.select(source, mask(source)), tree)


def with_all(part: Mask) -> Mask:
  """Return the mask of a part of a model and of all running statistics.

  Those of a frozen layer move in training, too.
  """
  return jax.tree.map(lambda a, b: a or b, part, mask(part))


# ---- Of models somewhere in a tree, by their paths in the model --------------


def names_of(model: PyTree) -> list[str]:
  """Return the paths of the running statistics of a model."""
  return trees.leaf_names(trees.select(model, mask(model)))


def found_in(tree: PyTree, names: list[str]) -> dict[str, Array]:
  """Return the statistics of the first model in a tree, by their paths."""
  statistics = {}
  for path, leaf in jax.tree.leaves_with_path(tree):
    statistics.setdefault(_model_path(path, names), leaf)
  statistics.pop(None, None)
  return statistics


def put_into(tree: PyTree, statistics: dict[str, Array]) -> PyTree:
  """Return the tree with these statistics in all its models, also in holes."""

  def put(path, leaf):
    name = _model_path(path, [*statistics])
    return leaf if name is None else statistics[name]

  is_hole = lambda leaf: leaf is None
  return jax.tree.map_with_path(put, tree, is_leaf=is_hole)


def _model_path(path: tuple, names: list[str]) -> str | None:
  """Return the longest of the names with which a path ends, if any."""
  path = f'/{trees.leaf_name(path)}'
  ends = [name for name in names if path.endswith(f'/{name}')]
  return max(ends, key=len, default=None)
