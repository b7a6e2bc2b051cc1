"""A module as pure functions of its parameters: those of flax.linen.

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
Begin = Callable[[Key, Array, Array], tuple[Array, dict[str, Params]]]


class ModuleFunctions(NamedTuple):
  """What a task is made of; x are model inputs, mask [B] is 0 for padding."""

  name: str
  begin: Begin  # (key, x, mask) -> (logits, collections: 'params' and others)
  features: Callable[[Params, Array, Array], Array]  # [B, F]
  logits: Callable[[Params, Array, Array], Array]  # [B, Y]
  train_outputs: Callable[[Params, Array, Array, Key], Outputs]
  norms: set[tuple[str, ...]]  # of normalisation layers, once begin is traced


def linen_functions(module: nn.Module) -> ModuleFunctions:
  """Return the functions of a module of flax.linen."""
  name = f'module {type(module).__name__}'
  is_random = takes_train(name, getattr(module, 'features', None))
  testing = {'train': False} if is_random else {}  # whatever its default is

  norms = set()

  def watch(call, args, how, context):
    if isinstance(context.module, NORMS):
      norms.add(context.module.path)
    return call(*args, **how)

  def begin(key, x, mask):
    with nn.intercept_methods(watch):
      return module.init_with_output(key, x, mask)

  def features(params, x, mask):
    return module.apply(
      {'params': params}, x, mask, **testing, method='features'
    )

  def logits(params, x, mask):
    if not is_random:
      return module.apply({'params': params}, x, mask)
    # Not by __call__, which may have no argument `train`.
    return module.apply(
      {'params': params}, x, mask, **testing, method=both
    ).logits

  def train_outputs(params, x, mask, key):
    if not is_random:
      return module.apply({'params': params}, x, mask, method=both)
    return module.apply(
      {'params': params},
      *(x, mask),
      train=True,
      method=both,
      rngs={'dropout': key},
    )

  return ModuleFunctions(name, begin, features, logits, train_outputs, norms)


def both(module: Any, x: Array, mask: Array, **how: bool) -> Outputs:
  """Return the features and the logits of one forward pass."""
  features = module.features(x, mask, **how)
  return Outputs(features, module.head(features))


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
