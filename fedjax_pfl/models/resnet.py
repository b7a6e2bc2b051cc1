"""ResNet10, 18 and 50 with a stem for small images (FedBABU, appendix).

  stem    conv 3x3 to 64 channels, BatchNorm, ReLU; no pooling
  stages  64, 128, 256, 512 channels; the first block of each but the first
          halves the image
  head    linear, on the mean over the remaining pixels (4x4 of 32x32)

BatchNorm uses the statistics of the batch, like all models here. The released
code keeps running statistics for these networks (and averages them like
weights); that variant is not written.

`inits` are the initialisers of all convolutions: PyTorch's in FedBABU, He's
(normal, by fan_out) in FedConcat. The head has PyTorch's in both, BatchNorm
scale 1 and shift 0, also that of a block's last convolution.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers

WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
  """relu(x' + f(x)): f two 3x3 convolutions, x' = x or its projection."""

  width: int
  stride: int
  inits: layers.Inits = layers.pytorch

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    conv, norm = _layers(self.inits)
    y = conv(self.width, 3, self.stride, 'conv1')(x)
    y = nn.relu(norm('bn1')(y, mask))
    y = conv(self.width, 3, 1, 'conv2')(y)
    if x.shape != y.shape:
      x = conv(self.width, 1, self.stride, 'shortcut')(x)
      x = norm('shortcut_bn')(x, mask)
    return nn.relu(norm('bn2')(y, mask) + x)


class Bottleneck(nn.Module):
  """As BasicBlock, with f = 1x1, 3x3 (which has the stride), 1x1 to 4 width."""

  width: int
  stride: int
  inits: layers.Inits = layers.pytorch

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    conv, norm = _layers(self.inits)
    y = conv(self.width, 1, 1, 'conv1')(x)
    y = nn.relu(norm('bn1')(y, mask))
    y = conv(self.width, 3, self.stride, 'conv2')(y)
    y = nn.relu(norm('bn2')(y, mask))
    y = conv(4 * self.width, 1, 1, 'conv3')(y)
    if x.shape != y.shape:
      x = conv(4 * self.width, 1, self.stride, 'shortcut')(x)
      x = norm('shortcut_bn')(x, mask)
    return nn.relu(norm('bn3')(y, mask) + x)


class Stage(nn.Module):
  """block0, block1, ...; the first one has the stride."""

  block: type[nn.Module]
  blocks: int
  width: int
  stride: int
  inits: layers.Inits = layers.pytorch

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    for b in range(self.blocks):
      stride = self.stride if b == 0 else 1
      block = self.block(self.width, stride, self.inits, name=f'block{b}')
      x = block(x, mask)
    return x


class ResNet(nn.Module):
  """stem, stem_bn, stage1, ..., stage4, head."""

  block: type[nn.Module]
  blocks: tuple[int, int, int, int]
  num_classes: int
  inits: layers.Inits = layers.pytorch

  def setup(self):
    self.stem = layers.Conv(64, inits=self.inits)
    self.stem_bn = layers.BatchNorm()
    for s, (blocks, width) in enumerate(
      zip(self.blocks, WIDTHS, strict=True), 1
    ):
      stride = 1 if s == 1 else 2
      stage = Stage(self.block, blocks, width, stride, self.inits)
      setattr(self, f'stage{s}', stage)
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    x = nn.relu(self.stem_bn(self.stem(x), mask))
    for s in range(1, len(self.blocks) + 1):
      x = getattr(self, f'stage{s}')(x, mask)
    return x.mean((1, 2))

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))


def _layers(inits: layers.Inits):
  def conv(features: int, size: int, stride: int, name: str) -> layers.Conv:
    return layers.Conv(
      features,
      (size, size),
      stride,
      size // 2,
      inits=inits,
      name=name,
    )

  def norm(name: str) -> layers.BatchNorm:
    return layers.BatchNorm(name=name)

  return conv, norm
