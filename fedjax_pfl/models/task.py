"""From the name of a model, or from a flax module, to a Task."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.errors import bad_input
from fedjax_pfl.models import convnet, lowering as lowerings, mobilenet, resnet
from fedjax_pfl.types import Array, Batch, Key, Mask, Params, Task, Transform

# name: (number of classes, lowering) -> module, and the least image side.
MODELS: dict[str, tuple[Callable[[int, str], nn.Module], int]] = {
  'convnet3': (lambda y, low: convnet.ConvNet(3, y, low), 8),
  'convnet4': (lambda y, low: convnet.ConvNet(4, y, low), 16),
  'mobilenet': (mobilenet.MobileNet, 1),
  'resnet10': (
    lambda y, low: _resnet(resnet.BasicBlock, 1, 1, 1, 1)(y, low),
    1,
  ),
}


def make_task(
  name: str,
  *,
  image_shape: tuple[int, int, int],
  num_classes: int,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  lowering: str = 'auto',
) -> Task:
  """Return the Task of a model by its name, for images (H, W, channels).

  >>> task = make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
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
      cause='a typo; a module of your own goes to task_from_module',
    )
  lowerings.resolve(lowering)
  make_module, smallest = MODELS[name]
  if len(image_shape) == 3 and min(image_shape[:2]) < smallest:
    raise bad_input(
      f'image_shape of {name}',
      got=tuple(image_shape),
      expected=f'at least {smallest}x{smallest} pixels',
      cause='a model with fewer poolings is meant (convnet3 needs 8x8)',
    )
  return task_from_module(
    make_module(num_classes, lowering),
    image_shape=image_shape,
    num_classes=num_classes,
    augment=augment,
    normalise=normalise,
  )


def task_from_module(
  module: nn.Module,
  *,
  image_shape: tuple[int, int, int],
  num_classes: int,
  augment: Transform | None = None,
  normalise: Transform | None = None,
) -> Task:
  """Return the Task of a flax module of your own.

  Called with (x [B, H, W, ch], mask [B]) it returns logits [B, Y]; its method
  `features` returns the input [B, F] of the last layer, which is called
  `head`. BatchNorm must be the one of `layers`: no collection but the
  parameters is kept.
  """
  _check_module(module, image_shape)

  def init(key: Key) -> Params:
    x = jnp.zeros((1, *image_shape), float)
    return module.init(key, x, jnp.ones(1, float))['params']

  def features(params: Params, x: Array, mask: Array) -> Array:
    return module.apply({'params': params}, x, mask, method='features')

  def logits(params: Params, x: Array, mask: Array) -> Array:
    return module.apply({'params': params}, x, mask)

  def loss(params: Params, batch: Batch, key: Key) -> Array:
    del key  # no dropout in these models
    return masked_cross_entropy(logits(params, batch.x, batch.mask), batch)

  _check_outputs(module, init, features, logits, image_shape, num_classes)
  return Task(
    init=init,
    features=features,
    logits=logits,
    loss=loss,
    augment=augment or unit_range,
    normalise=normalise or unit_range,
    is_head=_head_mask(jax.eval_shape(init, jax.random.key(0))),
    num_classes=num_classes,
  )


def masked_cross_entropy(logits: Array, batch: Batch) -> Array:
  """Return sum_b mask_b CE(logits_b, y_b) / max(sum_b mask_b, 1)."""
  chosen = jnp.take_along_axis(logits, batch.y[:, None], 1)[:, 0]
  losses = jax.nn.logsumexp(logits, 1) - chosen
  return (batch.mask * losses).sum() / jnp.maximum(batch.mask.sum(), 1)


def unit_range(x: Array, key: Key) -> Array:
  """Return uint8 images as floats in [0, 1]; floats stay as they are."""
  del key
  if jnp.issubdtype(x.dtype, jnp.floating):
    return x
  return x.astype(float) / 255


def _check_module(module: nn.Module, image_shape: tuple[int, int, int]):
  if len(image_shape) != 3 or min(image_shape) < 1:
    raise bad_input(
      'image_shape',
      got=tuple(image_shape),
      expected='(height, width, channels)',
      cause='grey images need a last axis of 1',
    )
  if not callable(getattr(module, 'features', None)):
    raise bad_input(
      f'module {type(module).__name__}',
      got='no method `features`',
      expected='features(x, mask) -> [B, F], the input of the head',
      cause='methods compare features; split __call__ before its last layer',
    )


def _check_outputs(module, init, features, logits, image_shape, num_classes):
  del module, init, features, logits, image_shape, num_classes


def _head_mask(params: Params) -> Mask:
  leaves = jax.tree_util.tree_leaves_with_path(params)
  names = ['/'.join(str(k.key) for k in path) for path, _ in leaves]
  hit = sum(name.split('/')[0] == 'head' for name in names)
  if not 0 < hit < len(names):
    raise bad_input(
      'module',
      got=f'a head mask that selects {hit} of {len(names)} leaves',
      expected='some but not all',
      choices=names,
      cause='Is the last layer called "head"?',
    )
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[0].key == 'head', params
  )


def _resnet(block, *blocks):
  return lambda y, low: resnet.ResNet(block, blocks, y, low)


MODELS |= {
  'resnet10': (_resnet(resnet.BasicBlock, 1, 1, 1, 1), 1),
  'resnet18': (_resnet(resnet.BasicBlock, 2, 2, 2, 2), 1),
  'resnet50': (_resnet(resnet.Bottleneck, 3, 4, 6, 3), 1),
}
