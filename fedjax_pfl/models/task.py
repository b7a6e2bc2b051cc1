"""Make a Task from the name of a model, or from a flax module."""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import masked_cross_entropy
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import (
  Array,
  Batch,
  Key,
  Mask,
  Outputs,
  Params,
  Task,
  Transform,
)
from fedjax_pfl.models import (
  convnet,
  mobilenet,
  resnet,
  simple_cnn,
  superfed_cnn,
  vgg9,
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
    batch_independent=model.batch_independent,
    conv_impl=conv_impl,
    precision=precision,
  )


def task_from_module(
  module: nn.Module,
  *,
  image_shape: tuple[int, int, int],
  num_classes: int,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  batch_independent: bool = False,
  conv_impl: str = 'auto',
  precision: str = 'float32',
) -> Task:
  """Return the Task of a flax module.

  Args:
    module: called with (x [B, H, W, ch], mask [B]) it returns logits [B, Y].
      Its method `features` returns the input [B, F] of its last layer, which is
      its attribute `head`. If `features` has an argument `train`, it is True in
      training, with a key for nn.Dropout. BatchNorm must be that of
      `models.ops.layers`: there are no collections besides parameters.
    image_shape: (H, W, ch).
    num_classes: Y.
    augment: the transform of training images; see `make_task`.
    normalise: the transform of test images.
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
  _check_shape(image_shape)
  is_random = 'train' in inspect.signature(_features_of(module)).parameters

  @jax.jit  # traced once: for the check, for shapes, for initialisation
  def begin(key: Key) -> tuple[Array, dict[str, Params]]:
    return module.init_with_output(key, *_example(image_shape))

  def init(key: Key) -> Params:
    return begin(key)[1]['params']

  def fast(fn: Callable) -> Callable:
    # A round traces the loss for its shapes and for its gradient, evaluation
    # once more: an inlined jit traces it once.
    fn = replace_layers(in_precision(fn, precision), conv_impl)
    return jax.jit(fn, inline=True)

  @fast
  def features(params: Params, x: Array, mask: Array) -> Array:
    return module.apply({'params': params}, x, mask, method='features')

  @fast
  def logits(params: Params, x: Array, mask: Array) -> Array:
    return module.apply({'params': params}, x, mask)

  @fast
  def train_outputs(params: Params, batch: Batch, key: Key) -> Outputs:
    if not is_random:
      return module.apply({'params': params}, batch.x, batch.mask, method=_both)
    return module.apply(
      {'params': params},
      *(batch.x, batch.mask),
      train=True,
      method=_both,
      rngs={'dropout': key},
    )

  def loss(params: Params, batch: Batch, key: Key) -> Array:
    return masked_cross_entropy(train_outputs(params, batch, key).logits, batch)

  params = _check_module(module, begin, num_classes)
  return Task(
    init=_compiled(init),
    features=features,
    logits=logits,
    loss=loss,
    train_outputs=train_outputs,
    augment=augment or unit_range,
    normalise=normalise or unit_range,
    is_head=_head_mask(params),
    num_classes=num_classes,
    batch_independent=batch_independent,
  )


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


def _both(module: nn.Module, x: Array, mask: Array, **how) -> Outputs:
  """Return the features and the logits of one forward pass."""
  features = module.features(x, mask, **how)
  return Outputs(features, module.head(features))


def _example(image_shape) -> tuple[Array, Array]:
  return jnp.zeros((2, *image_shape), float), jnp.ones(2, float)


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
      cause='its pooling leaves no pixel of a smaller image; '
      'convnet3 accepts 8x8, mobilenet and the resnets any size',
    )


def _features_of(module: nn.Module) -> Callable[..., Array]:
  features = getattr(module, 'features', None)
  if not callable(features):
    raise bad_input(
      f'module {type(module).__name__}',
      got='no method `features`',
      expected='features(x, mask) -> [B, F], the input of the head',
      cause='__call__ has all layers; split it before its last layer',
    )
  return features


def _check_module(module: nn.Module, begin, num_classes: int) -> Params:
  """Return the shapes of the parameters; raise BadInput for a wrong module."""
  name = f'module {type(module).__name__}'
  logits, variables = jax.eval_shape(  # with the key inside: nothing compiles
    lambda: begin(jax.random.key(0))
  )
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
      cause='num_classes is not the width of its head',
    )
  return variables['params']


def _head_mask(params: Params) -> Mask:
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
  names = ['/'.join(key.key for key in path) for path in paths]
  hit = sum(path[0].key == 'head' for path in paths)
  if not 0 < hit < len(names):
    raise bad_input(
      'module',
      got=f'a head mask that selects {hit} of {len(names)} leaves',
      expected=f'some but not all of the leaves {", ".join(names)}',
      cause='another name: is the last layer called "head"?',
    )
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[0].key == 'head', params
  )
