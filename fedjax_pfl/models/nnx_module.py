"""A module of flax.nnx as functions of its parameters.

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

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Key, PyTree
from fedjax_pfl.models.module_functions import (
  ModuleFunctions,
  outputs_of,
  takes_train,
  train_is,
)

NORMS = (
  nnx.BatchNorm,
  nnx.GroupNorm,
  nnx.InstanceNorm,
  nnx.LayerNorm,
  nnx.RMSNorm,
)


def nnx_functions(make: Callable[[nnx.Rngs], nnx.Module]) -> ModuleFunctions:
  """Return the functions of the module that make(rngs) returns."""

  def split(key: Key) -> tuple[PyTree, PyTree, PyTree]:
    """Return parameters, streams and other variables; keep what is static."""
    module = _checked(make(nnx.Rngs(key)))
    static['module'] = module
    static['graph'], *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
    return tuple(nnx.to_pure_dict(state) for state in states)

  static = {}
  shapes, streams, others = jax.eval_shape(lambda: split(jax.random.key(0)))
  kind, graph = type(static['module']), static['graph']
  name = f'module {kind.__name__}'
  has_train = takes_train(name, getattr(kind, 'features', None))
  parts = [*nnx.iter_graph(static.pop('module'))]
  _check(name, others, [part for _, part in parts], has_train)

  def apply(method, params, key, x, mask, **how):
    key = jax.random.key(0) if key is None else key
    tree = _with_keys_of(shapes, params)
    module = nnx.merge(graph, tree, _streams(streams, key))
    return method(module, x, mask, **how)

  def begin(key, x, mask):
    params = _with_words(split(key)[0])
    how = train_is(False, has_train)
    outputs = apply(outputs_of, params, None, x, mask, **how)
    return outputs, {'params': params}

  norms = {(*map(str, at),) for at, part in parts if isinstance(part, NORMS)}
  return ModuleFunctions(name, has_train, begin, apply, norms)


def _with_words(tree: PyTree) -> PyTree:
  """Return the tree with words for keys: places in a list become '0', '1'."""
  if not isinstance(tree, dict):
    return tree
  return {str(key): _with_words(inner) for key, inner in tree.items()}


def _with_keys_of(shapes: PyTree, words: PyTree) -> PyTree:
  """Return the tree with the keys that `_with_words` has replaced."""
  if not isinstance(shapes, dict):
    return words
  return {key: _with_keys_of(shapes[key], words[str(key)]) for key in shapes}


def _streams(shapes: PyTree, key: Key) -> PyTree:
  """Return streams of random numbers that begin with a key."""

  def begin(path, shape):
    if not jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
      return jnp.zeros(shape.shape, shape.dtype)  # how many were drawn
    own = jax.random.fold_in(key, paths.index(path))
    return jax.random.split(own, shape.shape) if shape.shape else own

  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
  return jax.tree_util.tree_map_with_path(begin, shapes)


def _checked(module: Any) -> nnx.Module:
  if isinstance(module, nnx.Module):
    return module
  raise bad_input(
    'module',
    got=type(module).__name__,
    expected='a module of flax.linen, or a function rngs -> module of flax.nnx',
    cause='a function without a return, or a module of another library',
  )


def _check(name: str, others: PyTree, parts: list, has_train: bool) -> None:
  """Refuse a module with more state than parameters, or wrong dropout."""
  if paths := jax.tree_util.tree_leaves_with_path(others):
    words = ['/'.join(str(key.key) for key in path) for path, _ in paths]
    raise bad_input(
      name,
      got=f'variables that are no parameters: {", ".join(words)}',
      expected='nnx.Param only: a model is a function of its parameters',
      cause='nnx.BatchNorm keeps running averages; nnx.LayerNorm and '
      'nnx.GroupNorm do not',
    )
  has_dropout = any(isinstance(p, nnx.Dropout) and p.rate for p in parts)
  if has_dropout and not has_train:
    raise bad_input(
      name,
      got='nnx.Dropout, and features without an argument `train`',
      expected='features(x, mask, train=False), which is True in training',
      choices=['self.dropout(x, deterministic=not train)'],
      cause='dropout that would be left on in testing',
    )
