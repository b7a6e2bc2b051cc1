"""A module of the user's: made by code, and as functions of its parameters.

A module of flax.nnx holds its parameters: `nnx.split` divides it into its
static structure, its parameters, and the streams of random numbers of its
dropout. Parameters become a nested dict by names, as those of flax.linen:
{'blocks': {'0': {'bias': ..}}, ..}; a step gives the streams its key.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from fedjax_pfl.core import norm_stats, user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import (
  DIVIDED,
  Array,
  Batch,
  Key,
  Outputs,
  Params,
  PyTree,
)
from fedjax_pfl.models import layers

NORMS = ('BatchNorm', 'GroupNorm', 'InstanceNorm', 'LayerNorm', 'RMSNorm')
NORMS_OF_LINEN = (layers.BatchNorm, *(getattr(nn, name) for name in NORMS))


# What a class or a function may be called with to make a module.
ARGUMENTS = ('num_classes', 'input_shape', 'rngs')
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ModuleFunctions(NamedTuple):
  """What a task is made of; x are model inputs, mask [B] is 0 for padding."""

  name: str
  begin: Callable[[Key, Array, Array], tuple[Outputs, Params]]
  # (method, params, key, x, mask, is_still=False) -> method(module, x, mask,
  # train): with a key of training, with None of testing. `is_still`: BatchNorm
  # as in testing.
  apply: Callable[..., Any]
  norms: set[tuple[str, ...]]  # of normalisation layers, once begin is traced
  batch_norms: set[tuple[str, ...]] = frozenset()  # those of `layers`
  has_train: bool = False  # `features` differs in training
  is_still: bool = False  # running statistics stay, and normalise in training
  divided: Mapping[str, int] = DIVIDED  # of a task

  # As the functions of a task of these names.
  def features(self, params: Params, x: Array, mask: Array) -> Array:
    return self.apply(_features_of, params, None, x, mask)

  def logits(self, params: Params, x: Array, mask: Array) -> Array:
    return self.apply(_outputs_of, params, None, x, mask).logits

  def train_outputs(self, params: Params, batch: Batch, key: Key) -> Outputs:
    x, mask = batch.x, batch.mask
    return self.apply(_outputs_of, params, key, x, mask, self.is_still)


def module_of(
  code: Any, image_shape: tuple[int, ...], num_classes: int
) -> nn.Module | Callable:
  """Return the module that code makes; of flax.nnx a function rngs -> module.

  Code is a module of flax.linen; or a class or a function, which is called with
  those that it takes of num_classes, input_shape (the shape of an example) and
  rngs (nnx.Rngs: the module is one of flax.nnx).
  """
  if isinstance(code, nn.Module):
    return code
  if not callable(code):
    raise bad_input(
      'model',
      got=f'{type(code).__name__}',
      expected='a flax module, its class, or a function that makes one',
      cause='the name of something else in that file; or a module of flax.nnx '
      'with its parameters in it, whose class is meant',
    )
  takes = _arguments_of(code)
  known = {'num_classes': num_classes, 'input_shape': tuple(image_shape)}
  given = {name: value for name, value in known.items() if name in takes}

  def make(**more: Any) -> Any:
    return user_code.call(
      'model',
      lambda: code(**given, **more),
      of=code,
      cause='a mistake there, or sizes that do not fit its inputs',
    )

  if 'rngs' in takes:
    return lambda rngs: make(rngs=rngs)
  module = make()
  if isinstance(module, nn.Module):
    return module
  raise bad_input(
    'model',
    got=f'{user_code.name_of(code)}, which makes {type(module).__name__}',
    expected='a module of flax.linen, or one of flax.nnx by the argument rngs',
    cause='a function without a return, a module of another library, or '
    'nnx.Rngs inside: a run draws the parameters of every seed itself',
  )


def _arguments_of(code: Callable) -> set[str]:
  """Return the arguments that code takes; refuse code that needs others."""
  # A class of flax.nnx is called by its metaclass.
  begin = code.__init__ if inspect.isclass(code) else code
  taken = {
    name: parameter.default is parameter.empty
    for name, parameter in inspect.signature(begin).parameters.items()
    if name != 'self' and parameter.kind not in VARIADIC
  }
  others = [name for name in taken if taken[name] and name not in ARGUMENTS]
  if not others:
    return {*taken}
  raise bad_input(
    'model',
    got=f'{user_code.name_of(code)}, which needs {", ".join(others)}',
    expected='no other argument without a default',
    choices=ARGUMENTS,
    cause='sizes that have no default: give them one, or write a function '
    'that makes the module',
  )


def functions_of(module: Any) -> ModuleFunctions:
  """Return the functions of a linen module, or of what makes one of nnx."""
  if isinstance(module, ModuleFunctions):
    return module
  if isinstance(module, nn.Module):
    return _linen_functions(module)
  from flax import nnx  # takes a second to import

  is_class = inspect.isclass(module) and issubclass(module, nn.Module)
  if callable(module) and not isinstance(module, nnx.Module) and not is_class:
    return _nnx_functions(module)
  raise _no_module(module)


def _no_module(module: Any) -> BadInput:
  is_class = inspect.isclass(module)
  kind = 'the class' if is_class else 'an instance of'
  return bad_input(
    'module',
    got=f'{kind} {(module if is_class else type(module)).__name__}',
    expected='a module of flax.linen, or a function rngs -> module of flax.nnx',
    choices=['MyNet(10)', 'lambda rngs: MyNet(10, rngs=rngs)'],
    cause='a class of flax.linen in the place of an instance, a module of '
    'flax.nnx with its parameters in it (a run draws those of every seed '
    'itself), or a function without a return',
  )


def _linen_functions(module: nn.Module) -> ModuleFunctions:
  name = f'module {type(module).__name__}'
  has_train = _takes_train(name, getattr(module, 'features', None))
  norms, batch_norms = set(), set()

  def watch(call, args, kwargs, context):
    if isinstance(context.module, NORMS_OF_LINEN):
      norms.add(context.module.path)
    if isinstance(context.module, layers.BatchNorm):
      batch_norms.add(context.module.path)
    return call(*args, **kwargs)

  def begin(key, x, mask):
    flags = {'train': False} if has_train else {}
    with nn.intercept_methods(watch):
      outputs, variables = module.init_with_output(
        key, x, mask, method=_outputs_of, **flags
      )
    if set(variables) == {'params'}:
      return outputs, variables['params']
    raise bad_input(
      name,
      got=f'the collections {sorted(variables)}',
      expected='params only: a model is a function of its parameters',
      cause='nn.BatchNorm keeps running averages; use layers.BatchNorm',
    )

  def apply(method, params, key, x, mask, is_still=False):
    flags = {'train': key is not None} if has_train else {}
    if key is not None:
      streams = (layers.TRAINING,) * (not is_still) + ('dropout',) * has_train
      flags['rngs'] = dict.fromkeys(streams, key)
    return module.apply({'params': params}, x, mask, **flags, method=method)

  table = getattr(module, 'divided', DIVIDED)
  return ModuleFunctions(
    name, begin, apply, norms, batch_norms, has_train, divided=table
  )


def with_statistics(params: Params, batch_norms: set) -> Params:
  """Return the parameters with mean 0 and variance 1 of each BatchNorm."""
  params = flatten_dict(params)
  for path in sorted(batch_norms):
    bias = params[*path, 'bias']
    params[*path, norm_stats.MEAN] = jnp.zeros_like(bias)
    params[*path, norm_stats.VAR] = jnp.ones_like(bias)
  return unflatten_dict(params)


def _nnx_functions(make: Callable[[Any], Any]) -> ModuleFunctions:
  from flax import nnx

  def made(key: Key) -> nnx.Module:
    module = make(nnx.Rngs(key))
    if isinstance(module, nnx.Module):
      return module
    raise _no_module(module)

  module = nnx.eval_shape(lambda: made(jax.random.key(0)))
  graph, *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
  shapes, streams, others = map(nnx.to_pure_dict, states)
  name = f'module {type(module).__name__}'
  has_train = _takes_train(name, getattr(type(module), 'features', None))
  parts = dict(nnx.iter_graph(module))
  _check_state(name, others)
  _check_dropout(name, parts.values(), has_train, nnx.Dropout)

  def apply(method, params, key, x, mask, is_still=False):
    del is_still  # there are no running statistics
    flags = {'train': key is not None} if has_train else {}
    key = jax.random.key(0) if key is None else key
    given = flatten_dict(params)
    tree = {path: given[_names(path)] for path in flatten_dict(shapes)}
    module = nnx.merge(graph, unflatten_dict(tree), _streams(streams, key))
    return method(module, x, mask, **flags)

  def begin(key, x, mask):
    tree = flatten_dict(nnx.to_pure_dict(nnx.state(made(key), nnx.Param)))
    params = unflatten_dict({_names(at): leaf for at, leaf in tree.items()})
    return apply(_outputs_of, params, None, x, mask), params

  kinds = tuple(getattr(nnx, kind) for kind in NORMS)
  norms = {_names(at) for at, part in parts.items() if isinstance(part, kinds)}
  table = getattr(type(module), 'divided', DIVIDED)
  return ModuleFunctions(
    name, begin, apply, norms, has_train=has_train, divided=table
  )


def _names(path: tuple) -> tuple[str, ...]:
  """Return the path with names of the items of a list: '0', '1'."""
  return tuple(map(str, path))


def _streams(shapes: PyTree, key: Key) -> PyTree:
  """Return streams of random numbers that begin with a key."""
  leaves, treedef = jax.tree.flatten(shapes)

  def begin(number, leaf):
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return jnp.zeros(leaf.shape, leaf.dtype)  # how many were drawn
    stream = jax.random.fold_in(key, number)
    return jax.random.split(stream, leaf.shape) if leaf.shape else stream

  return jax.tree.unflatten(treedef, map(begin, range(len(leaves)), leaves))


def _check_state(name: str, others: PyTree) -> None:
  if not others:
    return
  names = ['/'.join(_names(path)) for path in flatten_dict(others)]
  raise bad_input(
    name,
    got=f'variables that are no parameters: {", ".join(names)}',
    expected='nnx.Param only: a model is a function of its parameters',
    cause='nnx.BatchNorm keeps running averages; nnx.LayerNorm and '
    'nnx.GroupNorm do not',
  )


def _check_dropout(name: str, parts, has_train: bool, kind: type) -> None:
  if has_train or not any(isinstance(p, kind) and p.rate for p in parts):
    return
  raise bad_input(
    name,
    got='nnx.Dropout, and features without an argument `train`',
    expected='features(x, mask, train=False), which is True in training',
    choices=['self.dropout(x, deterministic=not train)'],
    cause='dropout that would be left on in testing',
  )


def _features_of(module: Any, x: Array, mask: Array, **flags: bool) -> Array:
  """Return the features [B, F]; of tokens [B, L] with features each, [B L, F].

  The mask of tokens is [B L], the module's one [B]: which rows have a label.
  """
  if mask.shape != x.shape[:1]:
    mask = mask.reshape(len(x), -1).max(1)
  features = module.features(x, mask, **flags)
  if features.ndim == 3 and features.shape[:2] == x.shape:
    return features.reshape(-1, features.shape[-1])
  return features


def _outputs_of(module: Any, x: Array, mask: Array, **flags: bool) -> Outputs:
  """Return the features and the logits of one forward pass."""
  features = _features_of(module, x, mask, **flags)
  return Outputs(features, module.head(features))


def _takes_train(name: str, features: Any) -> bool:
  if callable(features):
    return 'train' in inspect.signature(features).parameters
  raise bad_input(
    name,
    got='no method `features`',
    expected='features(x, mask) -> [B, F], the input of the head',
    cause='__call__ has all layers; split it before its last layer',
  )
