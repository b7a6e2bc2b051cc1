"""What a module must be to become a Task; a sentence for one that is not."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.trees import layer_mask, leaf_names
from fedjax_pfl.core.types import ExampleLoss, Mask, Params
from fedjax_pfl.models.module_functions import ModuleFunctions


def check_example_shape(image_shape) -> None:
  if len(image_shape) < 1 or min(image_shape) < 1:
    raise bad_input(
      'image_shape',
      got=tuple(image_shape),
      expected='the shape of an example, of one axis or more: (height, width, '
      'channels), (steps, channels)',
      cause='the shape of a batch with no example, or a single number a row: '
      'x[:, None] has the shape (1,)',
    )


def check_module(
  functions: ModuleFunctions, begin: Any, num_classes: int, x: Any
) -> Params:
  """Return the shapes of the parameters; refuse a module that has no task.

  Its logits must be head(features): training would end in it otherwise.
  """
  name = functions.name
  try:
    outputs, variables = jax.eval_shape(  # the key inside: nothing compiles
      lambda: begin(jax.random.key(0))
    )
  except BadInput:
    raise
  except Exception as error:  # somebody's program: anything
    text = str(error).strip().partition('\n')[0]
    raise bad_input(
      name,
      got=f'{type(error).__name__} for inputs {x.dtype}{list(x.shape)}: {text}',
      expected='features(x, mask), and head(features), to run on a batch of 2 '
      'examples',
      cause='layers for examples of another shape or dtype, other arguments, '
      'or no layer `head` in `setup`: is the last one called "head"? (one in '
      '@nn.compact is not found)',
    ) from error
  if set(variables) != {'params'}:
    raise bad_input(
      name,
      got=f'the collections {sorted(variables)}',
      expected='params only: a model is a function of its parameters',
      cause='nn.BatchNorm keeps running averages; use layers.BatchNorm',
    )
  features, logits = outputs.features.shape, outputs.logits.shape
  if len(features) != 2 or logits != (2, num_classes):
    raise bad_input(
      name,
      got=f'features {features}, of which head makes logits {logits}',
      expected=f'features (2, F) of a batch of 2, logits (2, {num_classes})',
      cause='num_classes is not the width of its head, layers are for inputs '
      f'of another shape than {tuple(x.shape)}, or a step between features '
      'and head in __call__ belongs to features',
    )
  return variables['params']


def head_mask(params: Params, num_classes: int) -> Mask:
  """Return which leaves are those of the head, a linear layer."""
  if set(params) == {'head'}:
    raise bad_input(
      'module',
      got='a head alone',
      expected='layers before it, which `features` calls',
      cause='`features` has no layer to train',
    )
  _check_head(params.get('head', {}), num_classes)
  return layer_mask(params, ['head'])


def norm_mask(params: Params, norms: set[tuple[str, ...]]) -> Mask:
  """Return which leaves belong to the layers at these paths."""

  def is_norm(path, _) -> bool:
    names = tuple(key.key for key in path)
    return any(names[:n] in norms for n in range(len(names)))

  return jax.tree_util.tree_map_with_path(is_norm, params)


def _check_head(head: Params, num_classes: int) -> None:
  """Refuse a head that is no linear layer: methods read its two arrays."""
  leaves = zip(leaf_names(head), jax.tree.leaves(head), strict=True)
  shapes = {name: leaf.shape for name, leaf in leaves}
  kernel, bias = shapes.get('kernel', ()), shapes.get('bias', ())
  if len(shapes) == len(kernel) == 2 and bias == kernel[1:] == (num_classes,):
    return
  raise bad_input(
    'module',
    got=f'a head with {shapes}',
    expected=f'a linear layer: a kernel [F, {num_classes}] and a bias '
    f'[{num_classes}]',
    choices=['nn.Dense(num_classes)', 'nnx.Linear(F, num_classes, rngs=rngs)'],
    cause='a head without a bias, or of several layers: all but the last one '
    'belong to `features`',
  )


def check_loss(loss: ExampleLoss | None, num_classes: int) -> None:
  """Refuse a loss that is no function of logits with a number an example."""
  if loss is None:
    return
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
    found = getattr(out, 'shape', None), getattr(out, 'dtype', None)
    if found[0] == (rows,) and jnp.issubdtype(found[1], jnp.floating):
      return
    got = f'{user_code.name_of(loss)} that returns {user_code.describe(out)}'
  raise bad_input(
    'loss',
    got=got,
    expected='a function (logits [B, Y], labels [B]) -> [B]: floats, one for '
    f'each example, float32[{rows}] for {rows} of them',
    cause='a mean over the batch, which is taken later, or labels that were '
    'not used to choose among the classes',
  )
