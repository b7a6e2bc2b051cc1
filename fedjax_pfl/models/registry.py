"""The list of models, and how to make the Task of one by its name.

The file of a model is imported when the model is made.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_pfl.core import norm_stats
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array, ExampleLoss, Outputs, Task, Transform
from fedjax_pfl.models.module_task import task_from_module


class Model(NamedTuple):
  """Where a model is, and the images that it accepts."""

  source: str  # 'file.name', in models/, of (num_classes=) -> module
  min_side: int = 1  # of an image: its pooling leaves a pixel
  patch: int = 1  # whose multiples the sides are
  sides: tuple[int, ...] = ()  # if given: only these, square; (side=) too
  batch_independent: bool = False  # see Task
  # Inputs are whole numbers [L] below this, or below Y; 0: images.
  tokens: int = 0
  any_shape: bool = False  # inputs of any shape are rows of numbers
  # What conv_impl=auto is, in float32: run on a card for convnet4 alone.
  on_gpu: str = 'fused'

  def make(self, image_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    file, _, name = self.source.partition('.')
    module = importlib.import_module(f'fedjax_pfl.models.{file}')
    size = {'side': image_shape[0]} if self.sides else {}
    return getattr(module, name)(num_classes=num_classes, **size)


ROWS = {'batch_independent': True}
MODELS = {
  'char_lstm': Model('char_lstm.CharLSTM', **ROWS, tokens=100),
  # Its tokens are below Y.
  'char_transformer': Model('transformer.CharTransformer', **ROWS, tokens=1),
  'convnet3': Model('convnets.convnet3', 2**3),
  'convnet4': Model('convnets.convnet4', 2**4, on_gpu='gemm'),
  'fedavg_cnn': Model('convnets.fedavg_cnn', 16, **ROWS, on_gpu='gemm'),
  'linear': Model('perceptrons.Linear', any_shape=True, **ROWS),
  'mlp': Model('perceptrons.MLP', any_shape=True, **ROWS),
  'mobilenet': Model('mobilenet.MobileNet', on_gpu='gemm'),
  'resnet10': Model('resnet.resnet10'),
  'resnet18': Model('resnet.resnet18'),
  'resnet50': Model('resnet.resnet50'),
  'resnet50_he': Model('resnet.resnet50_he'),
  'resnet18_imagenet': Model('resnet.resnet18_imagenet'),
  'resnet50_imagenet': Model('resnet.resnet50_imagenet'),
  'simple_cnn': Model('convnets.SimpleCNN', 16, **ROWS, on_gpu='gemm'),
  'superfed_cnn': Model(
    'convnets.SuperFedCNN', sides=(28, 32, 64), **ROWS, on_gpu='gemm'
  ),
  'vgg9': Model('convnets.VGG9', 8, **ROWS),
  'vit_b16': Model('transformer.vit_b16', patch=16, **ROWS),
  'vit_ti16': Model('transformer.vit_ti16', patch=16, **ROWS),
  'vit_tiny': Model('transformer.ViT', patch=4, **ROWS),
}
# What ran fastest on a card, of models whose `on_gpu` did not run on one.
RAN_ON_GPU = {'mobilenet': 'lax', 'simple_cnn': 'fused', 'superfed_cnn': 'lax'}
SLOW = 60  # seconds of compilation after which a run names it


def make_task(
  name: str,
  *,
  image_shape: tuple[int, ...],
  num_classes: int,
  augment: Transform | None = None,
  normalise: Transform | None = None,
  loss: ExampleLoss | str | None = None,
  conv_impl: str = 'auto',
  precision: str = 'float32',
  running_statistics: bool | str = False,
  wrap: Callable[[Any], Any] = lambda module: module,
) -> Task:
  """Return the Task of a model by its name.

  Args:
    name: one of `MODELS`: 'convnet4', 'resnet18', 'vit_tiny', ..
    image_shape: (H, W, ch); of tokens (L,).
    num_classes: Y.
    augment: the transform of training images, (x [B, H, W, ch], key) -> inputs;
      None divides uint8 images by 255. See `make_transforms`.
    normalise: the transform of test images; likewise.
    loss: of examples; see `task_from_module`.
    conv_impl: how convolutions are computed; see `task_from_module`. On a GPU
      'auto' is that of `MODELS`.
    precision: of its products: 'float32', 'tf32' or 'mixed'.
    running_statistics: of BatchNorm; see `task_from_module`.
    wrap: what is done to the module, such as `with_lora` with its rank.

  Returns:
    Task: the model as pure functions.

  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> params = task.init(jax.random.key(0))
  >>> task.features(params, jnp.zeros((5, 8, 8, 1)), jnp.ones(5)).shape
  (5, 64)
  """
  _check(name, image_shape)
  model = MODELS[name]
  options = {
    'image_shape': image_shape,
    'num_classes': num_classes,
    'augment': augment,
    'normalise': normalise,
    'loss': loss,
    'precision': precision,
    'running_statistics': running_statistics,
  }
  sibling = lambda name: make_task(name, conv_impl=asked, **options)
  # Tiles of numbers that are rounded, as in tf32, lose two bits.
  asked = conv_impl
  if conv_impl == 'auto' and target() == 'gpu' and precision == 'float32':
    conv_impl = model.on_gpu
  task = task_from_module(
    wrap(model.make(image_shape, num_classes)),
    input_dtype=int if model.tokens else float,
    # Of these models nothing but BatchNorm reads other rows.
    batch_independent=model.batch_independent
    or running_statistics == norm_stats.FROZEN,
    conv_impl=conv_impl,
    **options,
  )
  return task._replace(sibling=sibling)


def student_of(task: Task, name: str) -> Task:
  """Return the task of a shared student beside a client's own model.

  name: its architecture, one of the list of models; '': as the task's.
  """
  if not name:
    return task
  known = one_of(MODELS, "a known model, or '': as the client's")
  known.check('hp.student', name)
  if task.sibling is None:
    raise bad_input(
      'hp.student',
      got=name,
      expected="'' with a task of your own: its student has its architecture",
      choices=["hp.student=''", 'a task of make_task'],
      cause='a task of task_from_module',
    )
  return task.sibling(name)


def _check(name: str, image_shape: tuple[int, ...]) -> None:
  """Refuse an unknown model, and images that it cannot read."""
  cause = 'a module of your own, for which there is task_from_module'
  one_of(MODELS, 'a known model', cause).check('model', name)
  model, expected = MODELS[name], None
  if model.any_shape:
    return
  if model.tokens:
    if len(image_shape) != 1:
      expected = '(length,), of texts'
  elif len(image_shape) != 3 or min(image_shape) < 1:
    expected = '(height, width, channels)'
  elif model.sides and not image_shape[0] == image_shape[1] in model.sides:
    sizes = ', '.join(f'{side}x{side}' for side in model.sides)
    expected = f'{sizes} pixels, those of its paper'
  elif min(image_shape[:2]) < model.min_side:
    expected = f'at least {model.min_side}x{model.min_side} pixels'
  elif any(side % model.patch for side in image_shape[:2]):
    expected = f'sides that are multiples of {model.patch}, its patch'
  if expected:
    raise bad_input(
      f'image_shape of {name}',
      got=tuple(image_shape),
      expected=expected,
      cause='images for another model (convnet3 accepts 8x8, mobilenet and '
      'the resnets any size), channels before pixels, or grey images without '
      'a last axis of 1; char_lstm and char_transformer read tokens; '
      'model_image_size scales images',
    )


def advice(name: str, conv_impl: str, precision: str, seconds: float) -> str:
  """Return which `conv_impl` was measured, if a slow `auto` was not; or ''."""
  measured = RAN_ON_GPU.get(name)
  is_auto = (conv_impl, precision) == ('auto', 'float32')
  if seconds <= SLOW or target() != 'gpu' or not is_auto or not measured:
    return ''
  return (
    f'Compiling took {seconds:.0f} s. For {name} conv_impl=auto is gemm, '
    f'which was not run on a GPU; conv_impl={measured} was measured on one.'
  )


def outline(task: Task) -> Task:
  """Return the task with a model of the same leaves whose outputs are 0.

  For shapes and names: to trace a deep model takes longer than all else before
  a run's first round.
  """
  params = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  dtype = params['head']['kernel'].dtype
  width, num_classes = params['head']['kernel'].shape

  def zeros(x: Array) -> Outputs:
    rows = len(x) * task.num_labels
    shapes = (rows, width), (rows, num_classes)
    return Outputs(*(jnp.zeros(shape, dtype) for shape in shapes))

  return task._replace(
    features=lambda params, x, mask: zeros(x).features,
    logits=lambda params, x, mask: zeros(x).logits,
    train_outputs=lambda params, batch, key: zeros(batch.x),
    loss=lambda params, batch, key: jnp.zeros((), dtype),
    others=tuple(map(outline, task.others)),
    sibling=task.sibling and (lambda name: outline(task.sibling(name))),
  )
