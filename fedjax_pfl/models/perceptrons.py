"""Models of rows of numbers: a linear one, and one with a hidden layer."""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers


class Linear(layers.Network):
  """The head alone, of the inputs: linear or logistic regression."""

  def features(self, x: Array, mask: Array) -> Array:
    return x.reshape(len(x), -1)


class MLP(layers.Network):
  """A hidden layer of 64 with ReLU, whose outputs are the features."""

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    hidden = layers.Dense(64, name='hidden')
    return nn.relu(hidden(x.reshape(len(x), -1)))
