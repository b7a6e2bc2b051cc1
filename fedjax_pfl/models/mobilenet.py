"""MobileNet of width 1 with a stem for small images (FedBABU, appendix A).

stem   conv 3x3 to 32 channels, BatchNorm, ReLU
block  depthwise 3x3 (stride 1 or 2), BatchNorm, ReLU,
       pointwise 1x1, BatchNorm, ReLU
head   linear, on the mean over the remaining pixels (2x2 of 32x32)
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

# (channels out, stride) of block0 to block12.
BLOCKS = (
  (64, 1),
  (128, 2),
  (128, 1),
  (256, 2),
  (256, 1),
  (512, 2),
  *[(512, 1)] * 5,
  (1024, 2),
  (1024, 1),
)


class Block(nn.Module):
  """A separable convolution: over space, then over channels."""

  channels: int
  stride: int

  def setup(self):
    self.depthwise = layers.DepthwiseConv(self.stride)
    self.bn1 = layers.BatchNorm()
    self.pointwise = layers.Pointwise(self.channels)
    self.bn2 = layers.BatchNorm()

  def __call__(self, x: Array, mask: Array) -> Array:
    x = nn.relu(self.bn1(self.depthwise(x), mask))
    return nn.relu(self.bn2(self.pointwise(x), mask))


class MobileNet(nn.Module):
  """stem, stem_bn, block0, ..., block12, head."""

  num_classes: int

  def setup(self):
    self.stem = layers.Conv(32)
    self.stem_bn = layers.BatchNorm()
    for i, (channels, stride) in enumerate(BLOCKS):
      setattr(self, f'block{i}', Block(channels, stride))
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    x = nn.relu(self.stem_bn(self.stem(x), mask))
    for i in range(len(BLOCKS)):
      x = getattr(self, f'block{i}')(x, mask)
    return x.mean((1, 2))
