"""VGG-9 of FedConcat's scripts: six convolutions, three dense layers, no norm.

  conv1, conv2  3x3 to 32, 64,   2x2 max-pool
  conv3, conv4  3x3 to 128, 128, 2x2 max-pool, dropout of whole channels, 0.05
  conv5, conv6  3x3 to 256, 256, 2x2 max-pool
  fc1, fc2      512, 512, on the flattened (H, W, C) map; dropout 0.1 before
                the first and after the second, which are the features
  head          linear

ReLU after all but the head. 3,491,530 parameters on 32x32x3 images of 10
classes.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

WIDTHS = (32, 64, 128, 128, 256, 256)
MIN_SIDE = 8  # of an image: one pixel is left


class VGG9(nn.Module):
  """conv1, ..., conv6, fc1, fc2, head."""

  num_classes: int

  def setup(self):
    for i, width in enumerate(WIDTHS, 1):
      setattr(self, f'conv{i}', layers.Conv(width, use_bias=True))
    self.drop_channels = nn.Dropout(0.05, broadcast_dims=(1, 2))
    self.drop = nn.Dropout(0.1)
    self.fc1, self.fc2 = layers.Dense(512), layers.Dense(512)
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array, train: bool = False) -> Array:
    del mask
    x = nn.relu(self.conv2(nn.relu(self.conv1(x))))
    x = nn.relu(self.conv4(nn.relu(self.conv3(layers.max_pool(x)))))
    x = layers.max_pool(x)
    x = self.drop_channels(x, deterministic=not train)
    x = nn.relu(self.conv6(nn.relu(self.conv5(x))))
    x = layers.max_pool(x)
    x = self.drop(x.reshape(x.shape[0], -1), deterministic=not train)
    x = nn.relu(self.fc2(nn.relu(self.fc1(x))))
    return self.drop(x, deterministic=not train)

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))
