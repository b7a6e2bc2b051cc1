"""The words of the project: its types and its alphabet of shapes.

Shapes are commented with one alphabet throughout:

  K clients      C clients of a cohort     N padded examples of a client
  B batch        S seeds                   T rounds
  M clusters     F features                Y classes      P examples of a pool
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Array = jax.Array
Key = jax.Array  # a typed key: jax.random.key(seed)
PyTree = Any
Params = PyTree  # leaves are arrays
Mask = PyTree  # leaves are Python bools, in the structure of Params

# A transform turns uint8 rows of the pool [B, H, W, ch] into model inputs.
Transform = Callable[[Array, Key], Array]


class ClientData(NamedTuple):
  """Examples, stored once, and for every client the rows that are its own.

  Inside the function of one client the K axis is gone: index [N], count [].
  """

  x: Array  # [P, H, W, ch] uint8
  y: Array  # [P] int32
  index: Array  # [K, N] int32 rows of the pool; index[k, count[k]:] is padding
  count: Array  # [K] int32 real examples


class Batch(NamedTuple):
  """Model inputs (after the transform), labels, and 1. where a row is real."""

  x: Array  # [B, H, W, ch] float
  y: Array  # [B] int32
  mask: Array  # [B] float: 1. = example, 0. = padding


class Outputs(NamedTuple):
  """What a model makes of a training batch."""

  features: Array  # [B, F] the input of the head
  logits: Array  # [B, Y]


class Task(NamedTuple):
  """Everything that an algorithm may know about the model and its inputs.

  The mask reaches BatchNorm: padding must not move its statistics.
  `train_outputs` is the forward pass of training, random where the model is;
  `loss` is its cross-entropy, and `features` and `logits` are for testing.
  """

  init: Callable[[Key], Params]
  features: Callable[[Params, Array, Array], Array]  # (params, x, mask): [B, F]
  logits: Callable[[Params, Array, Array], Array]  # (params, x, mask): [B, Y]
  loss: Callable[[Params, Batch, Key], Array]  # masked mean over the batch
  train_outputs: Callable[[Params, Batch, Key], Outputs]
  augment: Transform  # for training and fine-tuning
  normalise: Transform  # for testing; ignores its key
  is_head: Mask  # Python bools, known before tracing
  num_classes: int
  # Features of a row depend on that row alone: no statistics of the batch.
  batch_independent: bool = False


class Scores(NamedTuple):
  """How one view of every client does on that client's test examples.

  A field that was not computed is None.
  """

  correct: Array  # [K] number of correct predictions
  count: Array  # [K] number of test examples
  loss: Array | None = None  # [K] mean cross-entropy; 0 without examples
  top5: Array | None = None  # [K] number whose class is among the 5 best
  ece: Array | None = None  # [K] expected calibration error, from 0 to 1
  mce: Array | None = None  # [K] maximum calibration error
