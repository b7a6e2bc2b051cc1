"""ResNet10, 18 and 50 with a stem for small images (FedBABU, appendix).

  stem    conv 3x3 to 64 channels, BatchNorm, ReLU; no pooling. `is_imagenet`,
          as torchvision has it: conv 7x7 with stride 2, BatchNorm, ReLU,
          max-pooling of 3x3 with stride 2
  stages  64, 128, 256, 512 channels; the first block of each but the first
          halves the image
  head    linear, on the mean over the remaining pixels (4x4 of 32x32)

The released code keeps running statistics (and averages them like weights):
norm_statistics 'running'.

`inits` are the initialisers of all convolutions: PyTorch's in FedBABU, He's
(normal, by fan_out) in FedConcat. The head has PyTorch's in both, BatchNorm
scale 1 and shift 0, also that of a block's last convolution.
"""

import functools

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers

WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
  """relu(x' + f(x)): f two 3x3 convolutions, x' = x or its projection."""

  width: int
  stride: int
  inits: layers.Inits = layers.pytorch

  # Of each convolution: widths out, side of the kernel, whether it has the
  # stride.
  convolutions = (1, 3, True), (1, 3, False)

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    conv = functools.partial(layers.Conv, inits=self.inits)

    def normed(x, widths, size, stride, name, norm):
      width, kernel = widths * self.width, (size, size)
      x = conv(width, kernel, stride, size // 2, name=name)(x)
      return layers.BatchNorm(name=norm)(x, mask)

    y = x
    for i, (widths, size, has_stride) in enumerate(self.convolutions, 1):
      y = nn.relu(y) if i > 1 else y
      stride = self.stride if has_stride else 1
      y = normed(y, widths, size, stride, f'conv{i}', f'bn{i}')
    if x.shape != y.shape:
      x = normed(x, widths, 1, self.stride, 'shortcut', 'shortcut_bn')
    return nn.relu(y + x)


class Bottleneck(BasicBlock):
  """As BasicBlock, with f = 1x1, 3x3 (which has the stride), 1x1 to 4 width."""

  convolutions = (1, 1, False), (1, 3, True), (4, 1, False)


class Stage(nn.Module):
  """block0, block1, ...; the first one has the stride."""

  block: type[nn.Module]
  blocks: int
  width: int
  stride: int
  inits: layers.Inits

  @nn.compact
  def __call__(self, x: Array, mask: Array) -> Array:
    for b in range(self.blocks):
      stride = self.stride if b == 0 else 1
      block = self.block(self.width, stride, self.inits, name=f'block{b}')
      x = block(x, mask)
    return x


class ResNet(layers.Network):
  """stem, stem_bn, stage1, ..., stage4, head."""

  block: type[nn.Module]
  blocks: tuple[int, int, int, int]
  inits: layers.Inits = layers.pytorch
  is_imagenet: bool = False

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    size, stride = (7, 2) if self.is_imagenet else (3, 1)
    x = layers.Conv(
      64, (size, size), stride, size // 2, inits=self.inits, name='stem'
    )(x)
    x = nn.relu(layers.BatchNorm(name='stem_bn')(x, mask))
    if self.is_imagenet:
      x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1)] * 2)
    for s, blocks in enumerate(self.blocks, 1):
      width, stride = WIDTHS[s - 1], min(s, 2)
      x = Stage(
        self.block, blocks, width, stride, self.inits, name=f'stage{s}'
      )(x, mask)
    return x.mean((1, 2))


resnet10 = functools.partial(ResNet, block=BasicBlock, blocks=(1, 1, 1, 1))
resnet18 = functools.partial(ResNet, block=BasicBlock, blocks=(2, 2, 2, 2))
resnet50 = functools.partial(ResNet, block=Bottleneck, blocks=(3, 4, 6, 3))
resnet18_imagenet = functools.partial(resnet18, is_imagenet=True)
resnet50_imagenet = functools.partial(resnet50, is_imagenet=True)
# As FedConcat's code begins it.
resnet50_he = functools.partial(resnet50, inits=layers.he_normal)
