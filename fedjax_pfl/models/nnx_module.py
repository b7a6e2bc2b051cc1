"""A module of flax.nnx as pure functions of its parameters.

`nnx.split` divides a module into its structure, which is static, its
parameters, and the streams of random numbers of its dropout. Parameters are a
nested dict, as those of flax.linen: {'blocks': {'0': {'kernel': ..}}, ..}. The
streams hold no state: a step gives them its key.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Array, Key, Outputs, Params, PyTree
from fedjax_pfl.models.module_functions import (
  ModuleFunctions,
  both,
  takes_train,
)

NORMS = (
  nnx.BatchNorm,
  nnx.GroupNorm,
  nnx.InstanceNorm,
  nnx.LayerNorm,
  nnx.RMSNorm,
)
MakeModule = Callable[[nnx.Rngs], nnx.Module]


def is_nnx(value: Any) -> bool:
  """Return whether the value is a module, already with its parameters."""
  return isinstance(value, nnx.Module)


def nnx_functions(make: MakeModule) -> ModuleFunctions:
  """Return the functions of the module that make(rngs) returns."""
  found = jax.eval_shape(lambda: _Found.of(make, jax.random.key(0)))
  name = f'module {found.kind.__name__}'
  is_random = takes_train(name, getattr(found.kind, 'features', None))
  _check(name, found, is_random)
  testing = {'train': False} if is_random else {}  # whatever its default is
  names = jax.tree_util.tree_leaves_with_path(found.params)

  def merged(params: Params, key: Key) -> nnx.Module:
    leaves = [_leaf(params, path) for path, _ in names]
    tree = jax.tree.unflatten(jax.tree.structure(found.params), leaves)
    return nnx.merge(found.graph, tree, _streams(found.streams, key))

  def begin(key, x, mask):
    made = _Found.of(make, key)
    params = _with_words(made.params)
    return logits(params, x, mask), {'params': params}

  def features(params, x, mask):
    return merged(params, jax.random.key(0)).features(x, mask, **testing)

  def logits(params, x, mask):
    module = merged(params, jax.random.key(0))
    return both(module, x, mask, **testing).logits

  def train_outputs(params, x, mask, key) -> Outputs:
    how = {'train': True} if is_random else {}
    return both(merged(params, key), x, mask, **how)

  return ModuleFunctions(
    name, begin, features, logits, train_outputs, {*found.norms}
  )


@jax.tree_util.register_pytree_node_class
class _Found:
  """A module in parts; under eval_shape, the shapes of its arrays."""

  def __init__(self, params: PyTree, streams: PyTree, others: PyTree, static):
    self.params, self.streams, self.others = params, streams, others
    self.static = static
    self.graph, self.kind, self.has_dropout, self.norms = static

  @classmethod
  def of(cls, make: MakeModule, key: Key) -> '_Found':
    module = make(nnx.Rngs(key))
    if not is_nnx(module):
      raise _not_a_module(module)
    graph, *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
    parts = [*nnx.iter_graph(module)]
    has_dropout = any(isinstance(p, nnx.Dropout) and p.rate for _, p in parts)
    norms = tuple((*map(str, at),) for at, p in parts if isinstance(p, NORMS))
    pure = [nnx.to_pure_dict(state) for state in states]
    return cls(*pure, (graph, type(module), has_dropout, norms))

  def tree_flatten(self) -> tuple:
    return (self.params, self.streams, self.others), self.static

  @classmethod
  def tree_unflatten(cls, static: tuple, parts: tuple) -> '_Found':
    return cls(*parts, static)


def _with_words(tree: PyTree) -> PyTree:
  """Return the tree with words for keys: places in a list become '0', '1'."""
  if not isinstance(tree, dict):
    return tree
  return {str(key): _with_words(inner) for key, inner in tree.items()}


def _leaf(params: Params, path: tuple) -> Array:
  for key in path:
    params = params[str(key.key)]
  return params


def _streams(shapes: PyTree, key: Key) -> PyTree:
  """Return streams of random numbers that begin with a key."""

  def begin(path, shape):
    if not jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
      return jnp.zeros(shape.shape, shape.dtype)  # how many were drawn
    place = paths.index(path)
    own = jax.random.fold_in(key, place)
    return jax.random.split(own, shape.shape) if shape.shape else own

  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
  return jax.tree_util.tree_map_with_path(begin, shapes)


def _check(name: str, found: _Found, is_random: bool) -> None:
  """Refuse a module with more state than parameters, or wrong dropout."""
  others = jax.tree_util.tree_leaves_with_path(found.others)
  if others:
    words = ['/'.join(str(key.key) for key in path) for path, _ in others]
    raise bad_input(
      name,
      got=f'variables that are no parameters: {", ".join(words)}',
      expected='nnx.Param only: a model is a function of its parameters',
      cause='nnx.BatchNorm keeps running averages; nnx.LayerNorm and '
      'nnx.GroupNorm do not',
    )
  if found.has_dropout and not is_random:
    raise bad_input(
      name,
      got='nnx.Dropout, and features without an argument `train`',
      expected='features(x, mask, train=False), which is True in training',
      choices=['self.dropout(x, deterministic=not train)'],
      cause='dropout that would be left on in testing',
    )


def _not_a_module(value: Any) -> BadInput:
  return bad_input(
    'module',
    got=type(value).__name__,
    expected='a module of flax.linen, or a function rngs -> module of flax.nnx',
    cause='a function without a return, or a module of another library',
  )
