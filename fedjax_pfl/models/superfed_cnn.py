"""The 5-layer CNN of SuperFed's first version, one for each image size.

             28x28 (EMNIST)    32x32 (CIFAR)     64x64 (Tiny-ImageNet)
  conv1      5x5 to 32, 24x24  5x5, 28x28        5x5, 60x60
  pool       2, 12x12          2, 14x14          3, 20x20
  conv2      5x5 to 64, 8x8    5x5, 10x10        5x5, 16x16
  pool       2, 4x4            2, 5x5            3, 5x5
  conv3      2x2 to 32, 3x3    3x3, 3x3          2x2, 4x4
  pool       2, 1x1            2, 1x1            3, 1x1
  fc1        512: the features
  head       linear
  parameters 109,022           94,186 / 140,356  181,416 (62, 10 / 100, 200)

No padding, ReLU after all but the head, pooling with stride = size. Kernels
are initialised as N(0, 2 / (fan_in + fan_out)), biases at 0. fc1 and head
are 1x1 convolutions in the paper, of a map of one pixel: the same.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

# Image side: (side of all poolings, side of conv3's kernel).
SIDES = {28: (2, 2), 32: (2, 3), 64: (3, 2)}


class SuperFedCNN(nn.Module):
  """conv1, conv2, conv3, fc1, head."""

  num_classes: int
  side: int = 32

  def setup(self):
    _, last = SIDES[self.side]

    def conv(width: int, size: int) -> nn.Module:
      return layers.Conv(
        width,
        (size, size),
        padding=0,
        use_bias=True,
        inits=layers.glorot_normal,
      )

    self.conv1, self.conv2, self.conv3 = (
      conv(32, 5),
      conv(64, 5),
      conv(32, last),
    )
    self.fc1 = layers.Dense(512, layers.glorot_normal)
    self.head = layers.Dense(self.num_classes, layers.glorot_normal)

  def features(self, x: Array, mask: Array) -> Array:
    del mask
    pool, _ = SIDES[self.side]
    for conv in (self.conv1, self.conv2, self.conv3):
      x = layers.max_pool(nn.relu(conv(x)), pool)
    return nn.relu(self.fc1(x.reshape(x.shape[0], -1)))

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))
