"""The simple CNN of FedConcat (section 4 of its code's base, NIID-Bench).

  conv1  5x5 to  6 channels, no padding, ReLU, 2x2 max-pool
  conv2  5x5 to 16 channels, no padding, ReLU, 2x2 max-pool
  fc1    120, ReLU, on the flattened (H, W, C) map
  fc2    84, ReLU: the features
  head   linear

62,006 parameters on 32x32x3 images of 10 classes, 44,426 on 28x28x1. The
encoder of the public code has one more layer, which is never used; it is left
out.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

MIN_SIDE = 16  # of an image: one pixel is left


class SimpleCNN(nn.Module):
  """conv1, conv2, fc1, fc2, head, of these widths."""

  num_classes: int
  widths: tuple[int, int, int, int] = (6, 16, 120, 84)

  def setup(self):
    def conv(width: int) -> nn.Module:
      return layers.Conv(width, (5, 5), padding=0, use_bias=True)

    self.conv1, self.conv2 = map(conv, self.widths[:2])
    self.fc1, self.fc2 = map(layers.Dense, self.widths[2:])
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    del mask
    x = layers.max_pool(nn.relu(self.conv1(x)))
    x = layers.max_pool(nn.relu(self.conv2(x)))
    x = nn.relu(self.fc1(x.reshape(x.shape[0], -1)))
    return nn.relu(self.fc2(x))

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))
