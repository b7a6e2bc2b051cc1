"""Make a Task of a flax module.

The precision of its arithmetic is the setting `precision`:

  float32   products of float32 as they are, on every device: without it a TPU
            rounds their inputs to bfloat16, and an H100 to TensorFloat-32
  tf32      inputs of products have 10 bits after the point where the device
            has such products (TensorFloat-32; three bfloat16 passes on a TPU)
  mixed     parameters are float32; activations and products are bfloat16.
            Statistics of BatchNorm, losses and updates of parameters are
            float32; so are logits and gradients, but of bfloat16 values

On a CPU float32 and tf32 are the same. float64 parameters stay float64 in the
first two.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.core import norm_stats, user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.example_losses import CROSS_ENTROPY, LOSSES
from fedjax_pfl.core.losses import batch_loss
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import gradients_alone, target
from fedjax_pfl.core.trees import layer_mask, leaf_names
from fedjax_pfl.core.types import (
  CLASSES,
  Array,
  Batch,
  ExampleLoss,
  Key,
  Mask,
  Outputs,
  Params,
  PyTree,
  Task,
  Transform,
  linear_head,
)
from fedjax_pfl.models.module_functions import (
  ModuleFunctions,
  functions_of,
  with_statistics,
)
from fedjax_pfl.models.replace_layers import replace_layers

PRECISIONS = ('float32', 'tf32', 'mixed')
JAX_NAMES = {'float32': 'float32', 'tf32': 'tensorfloat32'}
# Of XLA; at level 0 products and sums are not contracted, which changes bits.
FAST_COMPILE = {'xla_backend_optimization_level': 1}


def task_from_module(
  module: nn.Module | Callable[[Any], Any],
  *,
  image_shape: tuple[int, ...],
  num_classes: int,
  input_dtype: Any = float,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  loss: ExampleLoss | str | None = None,
  batch_independent: bool = False,
  conv_impl: str = 'auto',
  precision: str = 'float32',
  running_statistics: bool | str = False,
) -> Task:
  """Return the Task of a flax module.

  Args:
    module: a module of flax.linen; or a function that makes one of flax.nnx,
      `lambda rngs: MyNet(10, rngs=rngs)`, since these hold their parameters;
      or one of them `with_lora`.
      Its method `features`, called with (x [B, ...], mask [B]), returns the
      input [B, F] of its last layer, the linear layer `head`; `__call__` is
      not used. Of tokens x [B, L] they may be [B, L, F]: each has a label. If
      `features` has an argument `train`, it is True in training,
      for dropout, and False in testing.
      BatchNorm must be that of `models.layers`: there are no collections
      besides parameters.
    image_shape: the shape of an example: (H, W, ch), or any other.
    num_classes: Y.
    input_dtype: float, or int for inputs that are whole numbers: tokens.
    augment: the transform of training images; see `make_task`. Whole numbers
      stay as they are without one.
    normalise: the transform of test images.
    loss: (logits [B, Y], labels [B]) -> [B], of every example; None is
      cross-entropy; or the name of one: 'squared', 'huber', 'logistic', 'cox',
      of labels [B, M] that are floats. Methods minimise its mean.
    batch_independent: whether a row of features depends on that row of x only.
    conv_impl: how convolutions, pooling and BatchNorm are computed; see
      `replace_layers`.
    precision: 'float32' on every device; 'tf32', rounded inputs of products;
      or 'mixed', bfloat16 activations beside float32 parameters.
    running_statistics: whether BatchNorm has them, and tests with them;
      'frozen': they stay as they begin, and training has them, too.

  Returns:
    Task: the model as pure functions.

  >>> import flax.linen as nn
  >>> class Perceptron(nn.Module):
  ...   def setup(self):
  ...     self.body, self.head = nn.Dense(16), nn.Dense(10)
  ...   def features(self, x, mask):
  ...     return nn.relu(self.body(x.reshape(len(x), -1)))
  >>> task = pfl.task_from_module(
  ...   Perceptron(), image_shape=(8, 8, 1), num_classes=10)
  >>> task.is_head['head'], task.is_head['body']['bias']
  ({'bias': True, 'kernel': True}, False)
  """
  loss, labels = _loss_of(loss, num_classes)
  functions = functions_of(module)
  is_still = running_statistics == norm_stats.FROZEN
  functions = functions._replace(is_still=is_still)
  dtype = jnp.result_type(input_dtype)
  example = jax.ShapeDtypeStruct((2, *image_shape), dtype)

  @jax.jit  # traced once: for the check, for shapes, for initialisation
  def begin(key: Key) -> tuple[Outputs, Params]:
    x = jnp.zeros(example.shape, example.dtype)
    outputs, params = functions.begin(key, x, jnp.ones(2, float))
    if running_statistics:
      params = with_statistics(params, functions.batch_norms)
    return outputs, params

  def init(key: Key) -> Params:
    return begin(key)[1]

  def fast(fn: Callable) -> Callable:
    # A round traces the loss for its shapes and for its gradient, evaluation
    # once more: an inlined jit traces it once.
    fn = replace_layers(_in_precision(fn, precision), conv_impl)
    return jax.jit(fn, inline=True)

  train_outputs = fast(functions.train_outputs)

  def loss_of_batch(params: Params, batch: Batch, key: Key) -> Array:
    logits = train_outputs(params, batch, key).logits
    return batch_loss(logits, batch, loss)

  params, num_labels = _check_module(functions, begin, num_classes, example)
  is_whole = jnp.issubdtype(example.dtype, jnp.integer)
  untransformed = (lambda x, key=None: x) if is_whole else unit_range
  return Task(
    init=_compiled(init),
    features=fast(functions.features),
    logits=fast(functions.logits),
    loss=loss_of_batch,
    train_outputs=train_outputs,
    augment=augment or untransformed,
    normalise=normalise or untransformed,
    is_head=_head_mask(params, num_classes),
    norm_leaves=_norm_mask(params, functions.norms),
    num_classes=num_classes,
    num_labels=num_labels,
    labels=labels,
    batch_independent=batch_independent,
    example_loss=loss,
    classify=fast(linear_head),
    plain_logits=functions.logits,
    divided=functions.divided,
  )


def unit_range(x: Array, key: Key | None = None) -> Array:
  """Return uint8 images as floats in [0, 1]; floats stay as they are."""
  del key
  if jnp.issubdtype(x.dtype, jnp.floating):
    return x
  return x.astype(float) / 255


def _loss_of(
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


def _check_module(
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


def _head_mask(params: Params, num_classes: int) -> Mask:
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


def _norm_mask(params: Params, norms: set[tuple[str, ...]]) -> PyTree:
  """Return which leaves belong to the layers at these paths."""
  names_of = lambda path: tuple(key.key for key in path)
  is_in = lambda names: any(names[:n] in norms for n in range(len(names)))
  return jax.tree.map_with_path(lambda path, _: is_in(names_of(path)), params)


def _compiled(init: Callable[[Key], Params]) -> Callable[[Key], Params]:
  """Return init, compiled without the forward pass that flax needs for shapes.

  On a CPU, compiling it for the 4convNet took 6 s with full optimisation and
  takes 1.4 s with little; the bits are the same.
  """
  inner = jax.jit(init)
  outer = jax.jit(inner, compiler_options=FAST_COMPILE)

  def init_params(key: Key) -> Params:
    # Inside jit, all arrays are traced; under vmap alone they are not.
    traced = isinstance(jnp.zeros(()), jax.core.Tracer)
    return (inner if traced or target() != 'cpu' else outer)(key)

  return init_params


def _in_precision(fn: Callable, precision: str) -> Callable:
  """Return fn, a function of parameters and images, in this precision.

  Its results are float32 again in mixed precision.
  """
  cause = 'bfloat16, which is "mixed": parameters stay float32'
  known = one_of(PRECISIONS, 'a known precision of products', cause)
  known.check('precision', precision)

  @functools.wraps(fn)
  def run(params: PyTree, *args: PyTree) -> Any:
    if precision == 'mixed':  # the cast keeps gradients alone
      low, *rest = _cast((params, *args), jnp.bfloat16)
      low = norm_stats.taken_from(params, low)  # averages: not to be rounded
      return _cast(fn(low, *rest), jnp.float32)
    with jax.default_matmul_precision(JAX_NAMES[precision]):
      return fn(gradients_alone(params), *args)

  return run


def _cast(tree: PyTree, dtype) -> PyTree:
  def cast(leaf):
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)  # a key is not
    return leaf.astype(dtype) if is_float else leaf

  return jax.tree.map(cast, tree)
