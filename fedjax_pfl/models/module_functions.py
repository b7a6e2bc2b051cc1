"""A module as functions of its parameters: one of flax.linen.

nnx_module.py has the same functions of a module of flax.nnx.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Key, Outputs, Params
from fedjax_pfl.models.ops import layers

NORMS = (
  layers.BatchNorm,
  nn.BatchNorm,
  nn.GroupNorm,
  nn.InstanceNorm,
  nn.LayerNorm,
  nn.RMSNorm,
)


class ModuleFunctions(NamedTuple):
  """What a task is made of; x are model inputs, mask [B] is 0 for padding."""

  name: str
  has_train: bool  # `features` has an argument `train`
  # (key, x, mask) -> (outputs, collections: 'params' and others)
  begin: Callable[[Key, Array, Array], tuple[Outputs, dict[str, Params]]]
  # (method, params, key, x, mask, ..) -> method(module, x, mask, ..)
  apply: Callable[..., Any]
  norms: set[tuple[str, ...]]  # of normalisation layers, once begin is traced

  def features(self, params: Params, x: Array, mask: Array) -> Array:
    """Return the features [B, F] of testing."""
    how = train_is(False, self.has_train)
    return self.apply(features_of, params, None, x, mask, **how)

  def outputs(
    self, params: Params, x: Array, mask: Array, key: Key | None = None
  ) -> Outputs:
    """Return features and logits: with a key of training, else of testing."""
    how = train_is(key is not None, self.has_train)
    return self.apply(outputs_of, params, key, x, mask, **how)


def linen_functions(module: nn.Module) -> ModuleFunctions:
  """Return the functions of a module of flax.linen."""
  name = f'module {type(module).__name__}'
  has_train = takes_train(name, getattr(module, 'features', None))
  norms = set()

  def watch(call, args, how, context):
    if isinstance(context.module, NORMS):
      norms.add(context.module.path)
    return call(*args, **how)

  def begin(key, x, mask):
    how = train_is(False, has_train)
    with nn.intercept_methods(watch):
      return module.init_with_output(key, x, mask, method=outputs_of, **how)

  def apply(method, params, key, x, mask, **how):
    how |= {'rngs': {'dropout': key}} if how.get('train') else {}
    return module.apply({'params': params}, x, mask, method=method, **how)

  return ModuleFunctions(name, has_train, begin, apply, norms)


def features_of(module: Any, x: Array, mask: Array, **how: bool) -> Array:
  return module.features(x, mask, **how)


def outputs_of(module: Any, x: Array, mask: Array, **how: bool) -> Outputs:
  """Return the features and the logits of one forward pass."""
  features = module.features(x, mask, **how)
  return Outputs(features, module.head(features))


def train_is(value: bool, has_train: bool) -> dict[str, bool]:
  """Return the argument of `features`, whatever its default is."""
  return {'train': value} if has_train else {}


def takes_train(name: str, features: Any) -> bool:
  """Return whether the method `features` has an argument `train`."""
  if callable(features):
    return 'train' in inspect.signature(features).parameters
  raise bad_input(
    name,
    got='no method `features`',
    expected='features(x, mask) -> [B, F], the input of the head',
    cause='__call__ has all layers; split it before its last layer',
  )
