"""The setting frozen_features: all but the head is frozen, and runs once.

  z_j = f(x_j; body of init_from)   for all examples j, before the first round

Clients then hold features z [P, F] in the place of images, and the model of the
method is the head: any method that trains and sends a head trains this one, and
a step costs no pass through the body. Exact where images are not augmented, no
layer depends on the batch, and nothing is dropped.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.losses import batch_loss
from fedjax_pfl.core.target import compiler_options
from fedjax_pfl.core.types import Outputs, Params, Task
from fedjax_pfl.data.client_data import stack_clients
from fedjax_pfl.data.dealing import Log
from fedjax_pfl.data.images import Shape, digest
from fedjax_pfl.data.partition import OF_OWN
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import ExperimentData

BLOCK = 50  # images whose features are computed at a time
_LAST: dict[tuple, list[np.ndarray]] = {}  # the features of one key


def head_of(task: Task, shape: Shape) -> tuple[Task, Shape]:
  """Return the task of the head alone, and its inputs."""
  head = head_task(task)
  kernel = jax.eval_shape(head.init, jax.random.key(0))['head']['kernel']
  inputs = kernel.shape[:1]
  return head, shape._replace(image_shape=inputs, dtype='float32')


def head_task(task: Task) -> Task:
  """Return the task of the head alone; an input is its features."""

  def train_outputs(params, batch, key):
    return Outputs(batch.x, task.classify(params, batch.x))

  def loss(params, batch, key):
    logits = task.classify(params, batch.x)
    return batch_loss(logits, batch, task.example_loss)

  as_it_is = lambda x, key=None: x
  return task._replace(
    init=lambda key: {'head': task.init(key)['head']},
    features=lambda params, x, mask: x,
    logits=lambda params, x, mask: task.classify(params, x),
    loss=loss,
    train_outputs=train_outputs,
    augment=as_it_is,
    normalise=as_it_is,
    is_head={'head': task.is_head['head']},
    norm_leaves=None,
    batch_independent=True,
    sibling=None,
  )


def with_features(
  settings: Settings, task: Task, start: Any, data: ExperimentData, log: Log
) -> ExperimentData:
  """Return the same clients with features by the body of a `Start`.

  Those of the last call are kept: seeds and settings of a sweep share them.
  """
  splits = data.dataset.train, data.dataset.test
  images = digest(*(split.x for split in splits))
  data_set, recipe = settings.data.dataset, settings.data.preprocessing
  key = images, start.digest, settings.model, data_set, recipe
  if key not in _LAST:
    number = sum(len(split.x) for split in splits)
    log(f'frozen_features: computing those of {number:,} images once')
    features = _features(task, start.params, [split.x for split in splits])
    _LAST.clear()
    _LAST[key] = features
  pairs = zip(splits, _LAST[key], strict=True)
  train, test = (split._replace(x=x) for split, x in pairs)
  dataset = data.dataset._replace(train=train, test=test)
  pools = {
    name: stack_clients(split, [()], 'host').x
    for name, split in (('train', train), ('test', test))
  }
  is_own = settings.data.test_partition in OF_OWN  # tests are training images

  def moved(name, clients):
    is_test = name.endswith('test') and not is_own
    return clients._replace(x=pools['test' if is_test else 'train'])

  splits = {name: moved(name, rows) for name, rows in data.splits.items()}
  return data._replace(dataset=dataset, splits=splits)


def _features(task: Task, body: Params, pools: list) -> list[np.ndarray]:
  """Return the features [P, F] of each pool of images; body has no head."""

  @partial(jax.jit, compiler_options=compiler_options())
  def features(params, x):
    inputs = task.normalise(x, jax.random.key(0))
    return task.features(params, inputs, jnp.ones(len(x), inputs.dtype))

  shapes = jax.eval_shape(task.init, jax.random.key(0))
  head = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
  params = trees.combine(body, head)
  width = shapes['head']['kernel'].shape[0]

  def of_pool(images):
    rows = [np.zeros((0, width), 'f4')]  # of no image, too
    for first in range(0, len(images), BLOCK):
      x = images[first : first + BLOCK]
      more = [(0, BLOCK - len(x))] + [(0, 0)] * (x.ndim - 1)
      rows.append(np.asarray(features(params, np.pad(x, more)))[: len(x)])
    return np.concatenate(rows)

  return [of_pool(images) for images in pools]
