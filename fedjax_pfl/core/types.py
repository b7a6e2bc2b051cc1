"""Types of the whole package, and the alphabet of shapes.

Shapes are commented with one alphabet throughout:

  K clients      C clients of a cohort     N padded examples of a client
  B batch        S seeds                   T rounds
  M clusters     F features                Y classes      P examples of a set
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Key = jax.Array  # a typed key: jax.random.key(seed)
PyTree = Any
Params = PyTree  # leaves are arrays
Mask = PyTree  # leaves are Python bools, in the structure of Params
AnyPath = str | os.PathLike

# A transform turns uint8 images [B, H, W, ch] into model inputs.
Transform = Callable[[Array, Key], Array]
# (logits [B, Y], labels [B] or [B, M]): [B]
ExampleLoss = Callable[[Array, Array], Array]
# Kinds of labels: see core/example_losses.py.
CLASSES, NUMBERS, BITS, EVENTS = 'classes', 'numbers', 'bits', 'events'
# The axis of parameters that `model_devices` divide, by patterns of their path,
# the first that matches. A module may have a table of its own, `divided`.
DIVIDED = MappingProxyType({'*/kernel': -1, '*/embedding': -1})


class ClientData(NamedTuple):
  """Examples, stored once, and for every client the rows of its own.

  Inside the functions of one client there is no K axis: index [N], count [].

  >>> data = pfl.ClientData(
  ...   x=jnp.zeros((5, 8, 8, 1), jnp.uint8), y=jnp.arange(5),
  ...   index=jnp.array([[0, 1, 2], [3, 4, 0]]), count=jnp.array([3, 2]))
  >>> data.y[data.index[1, : data.count[1]]].tolist()
  [3, 4]
  """

  x: Array  # [P, H, W, ch] uint8; inputs that are no images: [P, ...]
  # [P] int32; [P, L] where each token has one, -1 for none; no classes, but
  # numbers, bits or (time, event): [P, M] float
  y: Array
  index: Array  # [K, N] int32 rows of x; index[k, count[k]:] is padding
  count: Array  # [K] int32 examples without padding
  # [K] share of its local steps that a client has time for; None: all of them
  work: Array | None = None


class Batch(NamedTuple):
  """Model inputs (after the transform), labels, and the mask of real rows.

  Where each of the L tokens of an example has a label, y and mask are those of
  tokens, [B L], as are features and logits; x stays [B, L].

  >>> batch = pfl.Batch(jnp.zeros((2, 8, 8, 1)), jnp.array([3, 0]),
  ...                   mask=jnp.array([1.0, 0.0]))
  >>> batch.x.shape, float(batch.mask.sum())
  ((2, 8, 8, 1), 1.0)
  """

  x: Array  # [B, H, W, ch] float; or inputs [B, ...] of any shape
  y: Array  # [B] int32; or [B, M] float, no classes
  mask: Array  # [B] float: 1. = example, 0. = padding


class Outputs(NamedTuple):
  """The outputs of a model for a training batch."""

  features: Array  # [B, F] the input of the head
  logits: Array  # [B, Y]


def matmul(a: Array, b: Array) -> Array:
  """Return a @ b, with float32 on every device: for products of a method.

  Those of a model have its precision.
  """
  return jnp.matmul(a, b, precision='highest')


def linear_head(params: Params, features: Array) -> Array:
  """Return the logits [B, Y] of features [B, F] by the layer `head`."""
  return features @ params['head']['kernel'] + params['head']['bias']


class Task(NamedTuple):
  """A model and its inputs as pure functions: all that an algorithm uses.

  The mask is for BatchNorm: padding must not change its statistics.
  `train_outputs` is the forward pass of training, with the model's randomness;
  `loss` is its cross-entropy, or another loss; `features` and `logits` are for
  testing, and `classify` gives the logits of features.

  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> params = task.init(jax.random.key(0))
  >>> batch = pfl.Batch(jnp.zeros((2, 8, 8, 1)), jnp.zeros(2, int), jnp.ones(2))
  >>> task.loss(params, batch, jax.random.key(1)).shape
  ()
  """

  init: Callable[[Key], Params]  # the first parameters
  features: Callable[[Params, Array, Array], Array]  # (params, x, mask): [B, F]
  logits: Callable[[Params, Array, Array], Array]  # (params, x, mask): [B, Y]
  loss: Callable[[Params, Batch, Key], Array]  # masked mean over the batch
  train_outputs: Callable[[Params, Batch, Key], Outputs]  # [B, F], [B, Y]
  augment: Transform  # for training and fine-tuning
  normalise: Transform  # for testing; without a key, too
  is_head: Mask  # Python bools, known before tracing
  num_classes: int  # Y
  # The features of a row depend on that row only: no statistics of the batch.
  batch_independent: bool = False
  # In `loss`, and where a method computes it itself; None is cross-entropy.
  example_loss: ExampleLoss | None = None
  # (params, features): [B, Y]
  classify: Callable[[Params, Array], Array] = linear_head
  # Of normalisation layers, by their type; None: see `is_norm`.
  norm_leaves: Mask | None = None
  num_labels: int = 1  # of an example: 1, or L where each token has one
  labels: str = CLASSES  # their kind; methods that need classes refuse others
  # Tasks of other groups of clients, if their models differ.
  others: tuple['Task', ...] = ()
  # name -> the task of that model for the same inputs; None: unknown.
  sibling: Callable[[str], 'Task'] | None = None
  # As `logits`, with the layers as they were written: to read them.
  plain_logits: Callable[[Params, Array, Array], Array] | None = None
  # {pattern of a path: the axis that `model_devices` divide}.
  divided: Mapping[str, int] = DIVIDED

  @property
  def is_norm(self) -> Mask:
    """Return the mask of the leaves of normalisation layers.

    By the type of the layers; of a task that does not know it, layers with a
    parameter `scale`, as BatchNorm, GroupNorm and LayerNorm have.
    """
    if self.norm_leaves is not None:
      return self.norm_leaves
    paths = jax.tree.leaves_with_path(self.is_head)
    scaled = {path[:-1] for path, _ in paths if path[-1].key == 'scale'}
    in_layer = lambda path, _: path[:-1] in scaled
    return jax.tree.map_with_path(in_layer, self.is_head)


class Scores(NamedTuple):
  """The scores of one view of every client on that client's test examples.

  A field that was not computed is None.

  >>> scores = pfl.Scores(correct=np.array([3, 4]), count=np.array([4, 8]))
  >>> (scores.correct / scores.count).tolist()
  [0.75, 0.5]
  """

  # [K] number of correct predictions; of another main measure than accuracy
  # count / 100 times it, so that 100 correct / count is it
  correct: Array
  count: Array  # [K] number of test examples; of labels, where tokens have them
  loss: Array | None = None  # [K] mean cross-entropy; 0 without examples
  top5: Array | None = None  # [K] number whose class is among the 5 best
  ece: Array | None = None  # [K] expected calibration error, from 0 to 1
  mce: Array | None = None  # [K] maximum calibration error
  own: dict[str, Array] | None = None  # [K] each: the user's metrics, by name
