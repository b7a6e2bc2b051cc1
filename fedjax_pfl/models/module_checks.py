"""What a module must be to become a Task; a sentence for one that is not."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Batch, ExampleLoss, Mask, Params, Task
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
  functions: ModuleFunctions, begin: Any, num_classes: int, example: tuple
) -> Params:
  """Return the shapes of the parameters; raise BadInput for a wrong module."""
  name, (x, _) = functions.name, example
  try:
    logits, variables = jax.eval_shape(  # with the key inside: nothing compiles
      lambda: begin(jax.random.key(0))
    )
  except BadInput:
    raise
  except Exception as error:  # somebody's program: anything
    raise _fails(name, error, x) from error
  if set(variables) != {'params'}:
    raise bad_input(
      name,
      got=f'the collections {sorted(variables)}',
      expected='params only: a model is a function of its parameters',
      cause='nn.BatchNorm keeps running averages; use layers.BatchNorm',
    )
  if logits.shape != (2, num_classes):
    raise bad_input(
      name,
      got=f'an output of shape {logits.shape} for a batch of 2',
      expected=f'logits of shape (2, {num_classes})',
      cause='num_classes is not the width of its head, or layers are for '
      f'inputs of another shape than {tuple(x.shape)}',
    )
  return variables['params']


def check_outputs(name: str, task: Task, x: jax.ShapeDtypeStruct) -> None:
  """Refuse a module that is not head(features): training would end in it.

  Of modules in which __call__ alone works: layers in @nn.compact, or a step
  between the features and the head.
  """
  mask = jax.ShapeDtypeStruct(x.shape[:1], jnp.result_type(float))

  def outputs(x, mask):
    key = jax.random.key(0)  # inside: nothing compiles
    return task.train_outputs(task.init(key), Batch(x, None, mask), key)

  try:
    found = jax.eval_shape(outputs, x, mask)
  except Exception as error:  # somebody's program: anything
    raise _fails(f'module {name}', error, x) from error
  got = found.features.shape, found.logits.shape
  want = x.shape[0], task.num_classes
  if len(got[0]) != 2 or got[1] != want:
    raise bad_input(
      f'module {name}',
      got=f'features {got[0]}, of which head makes logits {got[1]}',
      expected=f'features ({want[0]}, F), and logits {want}',
      cause='a step between features and head in __call__, which belongs to '
      'features',
    )


def _fails(name: str, error: Exception, x: Any) -> BadInput:
  text = str(error).strip().partition('\n')[0]
  return bad_input(
    name,
    got=f'{type(error).__name__} for inputs {x.dtype}{list(x.shape)}: {text}',
    expected='features(x, mask), __call__(x, mask) and head(features) to run '
    'on a batch of 2 examples',
    cause='layers for examples of another shape or dtype, other arguments, or '
    'no layer `head` in `setup` (one in @nn.compact is not found)',
  )


def head_mask(params: Params, num_classes: int) -> Mask:
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
  names = ['/'.join(key.key for key in path) for path in paths]
  hit = sum(path[0].key == 'head' for path in paths)
  if not 0 < hit < len(names):
    raise bad_input(
      'module',
      got=f'a head mask that selects {hit} of {len(names)} leaves',
      expected=f'some but not all of the leaves {", ".join(names)}',
      cause='another name: is the last layer called "head"?'
      if not hit
      else 'a head alone: `features` has no layer to train',
    )
  _check_head(params['head'], num_classes)
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[0].key == 'head', params
  )


def norm_mask(params: Params, norms: set[tuple[str, ...]]) -> Mask:
  """Return which leaves belong to the layers at these paths."""

  def is_norm(path, _) -> bool:
    names = tuple(key.key for key in path)
    return any(names[:n] in norms for n in range(len(names)))

  return jax.tree_util.tree_map_with_path(is_norm, params)


def _check_head(head: Params, num_classes: int) -> None:
  """Refuse a head that is no linear layer: methods read its two arrays."""
  shapes = {
    '/'.join(str(key.key) for key in path): leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(head)
  }
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
  cause = 'a mean over the batch, which is taken later, or labels that were '
  cause += 'not used to choose among the classes'
  if not callable(loss):
    got = type(loss).__name__
  else:
    out = user_code.call(
      'loss',
      lambda: jax.eval_shape(loss, logits, labels),
      of=loss,
      cause='other arguments, or numpy and `if` on arrays that are traced: '
      'use jnp and jnp.where',
    )
    is_array = isinstance(out, jax.ShapeDtypeStruct)
    if is_array and out.shape == (rows,) and _is_float(out):
      return
    got = f'{user_code.name_of(loss)} that returns {user_code.describe(out)}'
  raise bad_input(
    'loss',
    got=got,
    expected='a function (logits [B, Y], labels [B]) -> [B]: floats, one for '
    f'each example, float32[{rows}] for {rows} of them',
    cause=cause,
  )


def _is_float(array: Any) -> bool:
  return jnp.issubdtype(array.dtype, jnp.floating)
