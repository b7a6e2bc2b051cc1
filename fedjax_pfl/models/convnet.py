"""The 3convNet and the 4convNet (FedBABU, section 3 and appendix A).

Blocks of conv 3x3 of 64 channels with bias, BatchNorm, ReLU and 2x2
max-pooling, then one linear head on the flattened (H, W, C) map:

  depth 3 on 28x28x1 (EMNIST):   576 features
  depth 4 on 32x32x3 (CIFAR):    256 features
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

WIDTH = 64


class ConvNet(nn.Module):
  """conv1, bn1, ..., conv{depth}, bn{depth}, head."""

  depth: int
  num_classes: int

  def setup(self):
    for i in range(1, self.depth + 1):
      setattr(self, f'conv{i}', layers.Conv(WIDTH, use_bias=True))
      setattr(self, f'bn{i}', layers.BatchNorm())
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    for i in range(1, self.depth + 1):
      x = getattr(self, f'conv{i}')(x)
      x = getattr(self, f'bn{i}')(x, mask)
      x = layers.max_pool(nn.relu(x))
    return x.reshape(x.shape[0], -1)

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))


def min_side(depth: int) -> int:
  """Return the smallest image side that leaves a pixel after the pooling."""
  return 2**depth
