"""Check that a user's code can become a Task; refuse it with a sentence."""

import inspect
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.example_losses import CROSS_ENTROPY, LOSSES
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.trees import layer_mask, leaf_names
from fedjax_pfl.core.types import (
  CLASSES,
  Batch,
  ExampleLoss,
  Mask,
  Outputs,
  Params,
)
from fedjax_pfl.models.module_functions import ModuleFunctions

# What a class or a function may be called with to make a module.
ARGUMENTS = ('num_classes', 'input_shape', 'rngs')
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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


def check_module(
  functions: ModuleFunctions, begin: Callable, num_classes: int, x: Any
) -> tuple[Params, int]:
  """Return the shapes of the parameters, and how many labels an example has.

  Refused is a module that has no task: its logits must be head(features).
  """

  def run() -> tuple[Outputs, Params]:
    key = jax.random.key(0)  # inside: nothing compiles
    outputs, params = begin(key)
    if functions.has_train:
      batch = Batch(jnp.zeros(x.shape, x.dtype), None, jnp.ones(2, float))
      functions.train_outputs(params, batch, key)
    return outputs, params

  name = functions.name
  try:
    outputs, params = jax.eval_shape(run)
  except BadInput:
    raise
  except Exception as error:  # somebody's program: anything
    text = str(error).strip().partition('\n')[0]
    raise bad_input(
      name,
      got=f'{type(error).__name__} for inputs {x.dtype}{list(x.shape)}: {text}',
      expected='features(x, mask), and head(features), to run on a batch of 2 '
      'examples, in testing and in training',
      cause='layers for examples of another shape or dtype, other arguments, '
      'or no layer `head` in `setup`: is the last one called "head"? (one in '
      '@nn.compact is not found)',
    ) from error
  features, logits = outputs.features.shape, outputs.logits.shape
  rows = (2, 2 * x.shape[1]) if x.ndim == 2 else (2,)  # of examples, of tokens
  is_known = len(features) == 2 and features[0] in rows
  if is_known and logits == (features[0], num_classes):
    return params, features[0] // 2
  raise bad_input(
    name,
    got=f'features {features}, of which head makes logits {logits}',
    expected=f'features (2, F) of a batch of 2, logits (2, {num_classes})',
    cause='num_classes is not the width of its head, layers are for inputs '
    f'of another shape than {tuple(x.shape)}, or a step between features '
    'and head in __call__ belongs to features',
  )


def head_mask(params: Params, num_classes: int) -> Mask:
  """Return which leaves are those of the head, a linear layer."""
  head = params.get('head', {})
  leaves = zip(leaf_names(head), jax.tree.leaves(head), strict=True)
  shapes = {name: leaf.shape for name, leaf in leaves}
  kernel, bias = shapes.get('kernel', ()), shapes.get('bias', ())
  is_linear = len(shapes) == len(kernel) == 2
  if is_linear and bias == kernel[1:] == (num_classes,):
    return layer_mask(params, ['head'])
  raise bad_input(
    'module',
    got=f'a head with {shapes}',
    expected=f'a linear layer `head`, a kernel [F, {num_classes}] and a bias '
    f'[{num_classes}]',
    choices=['nn.Dense(num_classes)', 'nnx.Linear(F, num_classes, rngs=rngs)'],
    cause='a head without a bias, or of several layers: all but the last one '
    'belong to `features`',
  )


def loss_of(
  loss: ExampleLoss | str | None, num_classes: int
) -> tuple[ExampleLoss | None, str]:
  """Return a loss of examples, and the kind of its labels.

  Refused is one that is no function of logits with a number an example.
  """
  if isinstance(loss, str):
    one_of(LOSSES, 'a known loss, or a function').check('loss', loss)
    return LOSSES[loss]
  if loss is None:
    return LOSSES[CROSS_ENTROPY]
  rows = 3
  logits = jax.ShapeDtypeStruct((rows, num_classes), jnp.result_type(float))
  labels = jax.ShapeDtypeStruct((rows,), jnp.int32)
  got = type(loss).__name__
  if callable(loss):
    out = user_code.call(
      'loss',
      lambda: jax.eval_shape(loss, logits, labels),
      of=loss,
      cause='other arguments, or numpy and `if` on arrays that are traced: '
      'use jnp and jnp.where',
    )
    shape, dtype = getattr(out, 'shape', None), getattr(out, 'dtype', None)
    if shape == (rows,) and jnp.issubdtype(dtype, jnp.floating):
      return loss, CLASSES
    got = f'{user_code.name_of(loss)} that returns {user_code.describe(out)}'
  raise bad_input(
    'loss',
    got=got,
    expected='a function (logits [B, Y], labels [B]) -> [B]: floats, one for '
    f'each example, float32[{rows}] for {rows} of them',
    cause='a mean over the batch, which is taken later, or labels that were '
    'not used to choose among the classes',
  )
