"""MobileNet of width 1 with a stem for small images (FedBABU, appendix A).

stem   conv 3x3 to 32 channels, BatchNorm, ReLU
block  depthwise 3x3 (stride 1 or 2), BatchNorm, ReLU,
       pointwise 1x1, BatchNorm, ReLU
head   linear, on the mean over the remaining pixels (2x2 of 32x32)
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers

# Of block0 to block12.
CHANNELS = 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024
STRIDES = 1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1


class Block(nn.Module):
  """A separable convolution: over space, then over channels."""

  channels: int
  stride: int

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    x = layers.DepthwiseConv(self.stride, name='depthwise')(x)
    x = nn.relu(layers.BatchNorm(name='bn1')(x, mask))
    x = layers.Pointwise(self.channels, name='pointwise')(x)
    return nn.relu(layers.BatchNorm(name='bn2')(x, mask))


class MobileNet(layers.Network):
  """stem, stem_bn, block0, ..., block12, head."""

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    x = layers.Conv(32, name='stem')(x)
    x = nn.relu(layers.BatchNorm(name='stem_bn')(x, mask))
    for i, sizes in enumerate(zip(CHANNELS, STRIDES, strict=True)):
      x = Block(*sizes, name=f'block{i}')(x, mask)
    return x.mean((1, 2))
