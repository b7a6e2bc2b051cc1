"""Make a Task from the name of a model, or from a flax module."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import batch_loss
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import (
  Array,
  Batch,
  ExampleLoss,
  Key,
  Outputs,
  Params,
  Task,
  Transform,
  linear_head,
)
from fedjax_pfl.models import (
  convnet,
  mobilenet,
  resnet,
  simple_cnn,
  superfed_cnn,
  vgg9,
)
from fedjax_pfl.models.module_checks import (
  check_example_shape,
  check_loss,
  check_module,
  head_mask,
)
from fedjax_pfl.models.module_functions import (
  ModuleFunctions,
  linen_functions,
)
from fedjax_pfl.models.ops import layers
from fedjax_pfl.models.ops.replace_layers import replace_layers
from fedjax_pfl.models.precision import in_precision

# Of XLA; at level 0 products and sums are not contracted, which changes bits.
FAST_COMPILE = {'xla_backend_optimization_level': 1}


class Model(NamedTuple):
  """How to make a model, and the images that it accepts."""

  make: Callable[..., nn.Module]  # (num_classes=) -> module
  min_side: int = 1  # of an image
  sides: tuple[int, ...] = ()  # if given: only these, square; make(side=) too
  batch_independent: bool = False  # see Task


def _resnet(
  block: type[nn.Module], *blocks: int, inits: layers.Inits = layers.pytorch
) -> Model:
  return Model(functools.partial(resnet.ResNet, block, blocks, inits=inits))


MODELS = {
  'convnet3': Model(functools.partial(convnet.ConvNet, 3), convnet.min_side(3)),
  'convnet4': Model(functools.partial(convnet.ConvNet, 4), convnet.min_side(4)),
  'mobilenet': Model(mobilenet.MobileNet),
  'resnet10': _resnet(resnet.BasicBlock, 1, 1, 1, 1),
  'resnet18': _resnet(resnet.BasicBlock, 2, 2, 2, 2),
  'resnet50': _resnet(resnet.Bottleneck, 3, 4, 6, 3),
  # As FedConcat's code begins it.
  'resnet50_he': _resnet(resnet.Bottleneck, 3, 4, 6, 3, inits=layers.he_normal),
  'simple_cnn': Model(
    simple_cnn.SimpleCNN, simple_cnn.MIN_SIDE, batch_independent=True
  ),
  'superfed_cnn': Model(
    superfed_cnn.SuperFedCNN,
    sides=(*superfed_cnn.SIDES,),
    batch_independent=True,
  ),
  'vgg9': Model(vgg9.VGG9, vgg9.MIN_SIDE, batch_independent=True),
}


def make_task(
  name: str,
  *,
  image_shape: tuple[int, int, int],
  num_classes: int,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  loss: ExampleLoss | None = None,
  conv_impl: str = 'auto',
  precision: str = 'float32',
) -> Task:
  """Return the Task of a model by its name.

  Args:
    name: 'convnet3', 'convnet4', 'mobilenet', 'resnet10', 'resnet18',
      'resnet50', 'resnet50_he', 'simple_cnn', 'superfed_cnn' or 'vgg9'.
    image_shape: (H, W, ch).
    num_classes: Y.
    augment: the transform of training images, (x [B, H, W, ch], key) -> inputs;
      None divides uint8 images by 255. See `make_transforms`.
    normalise: the transform of test images; likewise.
    loss: of examples; see `task_from_module`.
    conv_impl: how convolutions are computed; see `task_from_module`.
    precision: of its products: 'float32', 'tf32' or 'mixed'.

  Returns:
    Task: the model as pure functions.

  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> params = task.init(jax.random.key(0))
  >>> task.features(params, jnp.zeros((5, 8, 8, 1)), jnp.ones(5)).shape
  (5, 64)
  """
  if name not in MODELS:
    raise bad_input(
      'model',
      got=name,
      expected='a known model',
      choices=MODELS,
      cause='a typo; for a module of your own, use task_from_module',
    )
  model = MODELS[name]
  _check_shape(image_shape)
  _check_sides(name, model, image_shape)
  size = {'side': image_shape[0]} if model.sides else {}
  return task_from_module(
    model.make(num_classes=num_classes, **size),
    image_shape=image_shape,
    num_classes=num_classes,
    augment=augment,
    normalise=normalise,
    loss=loss,
    batch_independent=model.batch_independent,
    conv_impl=conv_impl,
    precision=precision,
  )


def task_from_module(
  module: nn.Module | Callable[[Any], Any],
  *,
  image_shape: tuple[int, ...],
  num_classes: int,
  input_dtype: Any = float,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  loss: ExampleLoss | None = None,
  batch_independent: bool = False,
  conv_impl: str = 'auto',
  precision: str = 'float32',
) -> Task:
  """Return the Task of a flax module.

  Args:
    module: a module of flax.linen; or a function that makes one of flax.nnx,
      `lambda rngs: MyNet(10, rngs=rngs)`, since these hold their parameters.
      Its method `features`, called with (x [B, ...], mask [B]), returns the
      input [B, F] of its last layer, the linear layer `head`. A module of
      flax.linen is called with (x, mask), too, and returns logits [B, Y]. If
      `features` has an argument `train`, it is True in training, for dropout,
      and False in testing.
      BatchNorm must be that of `models.ops.layers`: there are no collections
      besides parameters.
    image_shape: the shape of an example: (H, W, ch), or any other.
    num_classes: Y.
    input_dtype: float, or int for inputs that are whole numbers: tokens.
    augment: the transform of training images; see `make_task`. Whole numbers
      stay as they are without one.
    normalise: the transform of test images.
    loss: (logits [B, Y], labels [B]) -> [B], of every example; None is
      cross-entropy. Methods minimise its mean.
    batch_independent: whether a row of features depends on that row of x only.
    conv_impl: how convolutions, pooling and BatchNorm are computed; see
      `replace_layers`.
    precision: 'float32' on every device; 'tf32', rounded inputs of products;
      or 'mixed', bfloat16 activations beside float32 parameters.

  Returns:
    Task: the model as pure functions.

  >>> import flax.linen as nn
  >>> class Perceptron(nn.Module):
  ...   def setup(self):
  ...     self.body, self.head = nn.Dense(16), nn.Dense(10)
  ...   def features(self, x, mask):
  ...     return nn.relu(self.body(x.reshape(len(x), -1)))
  ...   def __call__(self, x, mask):
  ...     return self.head(self.features(x, mask))
  >>> task = pfl.task_from_module(
  ...   Perceptron(), image_shape=(8, 8, 1), num_classes=10)
  >>> task.is_head['head'], task.is_head['body']['bias']
  ({'bias': True, 'kernel': True}, False)
  """
  check_example_shape(image_shape)
  check_loss(loss, num_classes)
  functions = _functions_of(module)
  example = _example(image_shape, input_dtype)

  @jax.jit  # traced once: for the check, for shapes, for initialisation
  def begin(key: Key) -> tuple[Array, dict[str, Params]]:
    return functions.begin(key, *example())

  def init(key: Key) -> Params:
    return begin(key)[1]['params']

  def fast(fn: Callable) -> Callable:
    # A round traces the loss for its shapes and for its gradient, evaluation
    # once more: an inlined jit traces it once.
    fn = replace_layers(in_precision(fn, precision), conv_impl)
    return jax.jit(fn, inline=True)

  @fast
  def features(params: Params, x: Array, mask: Array) -> Array:
    return functions.features(params, x, mask)

  @fast
  def logits(params: Params, x: Array, mask: Array) -> Array:
    return functions.logits(params, x, mask)

  @fast
  def train_outputs(params: Params, batch: Batch, key: Key) -> Outputs:
    return functions.train_outputs(params, batch.x, batch.mask, key)

  def loss_of_batch(params: Params, batch: Batch, key: Key) -> Array:
    logits = train_outputs(params, batch, key).logits
    return batch_loss(logits, batch, loss)

  params = check_module(functions, begin, num_classes, jax.eval_shape(example))
  is_whole = jnp.issubdtype(input_dtype, jnp.integer)
  untransformed = as_given if is_whole else unit_range
  return Task(
    init=_compiled(init),
    features=features,
    logits=logits,
    loss=loss_of_batch,
    train_outputs=train_outputs,
    augment=augment or untransformed,
    normalise=normalise or untransformed,
    is_head=head_mask(params, num_classes),
    num_classes=num_classes,
    batch_independent=batch_independent,
    example_loss=loss,
    classify=fast(linear_head),
  )


def as_given(x: Array, key: Key) -> Array:
  """Return the inputs unchanged."""
  del key
  return x


def unit_range(x: Array, key: Key) -> Array:
  """Return uint8 images as floats in [0, 1]; floats stay as they are."""
  del key
  if jnp.issubdtype(x.dtype, jnp.floating):
    return x
  return x.astype(float) / 255


def _compiled(init: Callable[[Key], Params]) -> Callable[[Key], Params]:
  """Return init, compiled without the forward pass that flax needs for shapes.

  The program runs once. On a CPU, compiling it for the 4convNet took 6 s with
  full optimisation and takes 1.4 s with little; the bits are the same. Inside
  another program the options of that program apply.
  """
  inner = jax.jit(init)
  outer = jax.jit(inner, compiler_options=FAST_COMPILE)

  def init_params(key: Key) -> Params:
    # Inside jit, all arrays are traced; under vmap alone they are not.
    traced = isinstance(jnp.zeros(()), jax.core.Tracer)
    on_cpu = target() == 'cpu'
    return (outer if on_cpu and not traced else inner)(key)

  return init_params


def _functions_of(module: Any) -> ModuleFunctions:
  if isinstance(module, nn.Module):
    return linen_functions(module)
  # Imported here: flax.nnx takes a quarter of a second.
  from fedjax_pfl.models import nnx_module

  if callable(module) and not nnx_module.is_nnx(module):
    return nnx_module.nnx_functions(module)
  raise bad_input(
    'module',
    got=f'an instance of {type(module).__name__}',
    expected='a module of flax.linen, or a function rngs -> module of flax.nnx',
    choices=['lambda rngs: MyNet(10, rngs=rngs)'],
    cause='a module of flax.nnx with its parameters in it: a run draws those '
    'of every seed itself',
  )


def _example(image_shape, dtype) -> Callable[[], tuple[Array, Array]]:
  """Return the function that makes a batch of 2, and its mask."""
  return lambda: (jnp.zeros((2, *image_shape), dtype), jnp.ones(2, float))


def _check_shape(image_shape):
  if len(image_shape) != 3 or min(image_shape) < 1:
    raise bad_input(
      'image_shape',
      got=tuple(image_shape),
      expected='(height, width, channels)',
      cause='grey images need a last axis of 1',
    )


def _check_sides(name: str, model: Model, image_shape) -> None:
  height, width, _ = image_shape
  if model.sides and not height == width in model.sides:
    sizes = ', '.join(f'{side}x{side}' for side in model.sides)
    raise bad_input(
      f'image_shape of {name}',
      got=tuple(image_shape),
      expected=f'{sizes} pixels',
      cause='it is defined for the image sets of its paper only; '
      'convnet3 accepts 8x8, mobilenet and the resnets any size',
    )
  if min(height, width) < model.min_side:
    raise bad_input(
      f'image_shape of {name}',
      got=tuple(image_shape),
      expected=f'at least {model.min_side}x{model.min_side} pixels',
      cause='its pooling leaves no pixel of a smaller image (convnet3 accepts '
      '8x8, mobilenet and the resnets any size); or channels before pixels',
    )
