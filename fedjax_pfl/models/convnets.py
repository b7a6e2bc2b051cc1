"""Networks of convolutions, max-pooling and dense layers, one for each paper.

  ConvNet      FedBABU, section 3 and appendix A: the 3convNet and the 4convNet
  SimpleCNN    FedConcat, section 4 of its code's base, NIID-Bench
  SuperFedCNN  SuperFed's first version, one for each image size
  VGG9         of FedConcat's scripts

ReLU after all layers but the head. A dense layer reads the flattened (H, W, C)
map.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers


class ConvNet(nn.Module):
  """Blocks of conv 3x3 of 64 channels with bias, BatchNorm, 2x2 max-pooling.

  depth 3 on 28x28x1 (EMNIST):   576 features
  depth 4 on 32x32x3 (CIFAR):    256 features
  """

  depth: int
  num_classes: int

  def setup(self):
    for i in range(1, self.depth + 1):
      setattr(self, f'conv{i}', layers.Conv(64, use_bias=True))
      setattr(self, f'bn{i}', layers.BatchNorm())
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    for i in range(1, self.depth + 1):
      x = getattr(self, f'conv{i}')(x)
      x = getattr(self, f'bn{i}')(x, mask)
      x = layers.max_pool(nn.relu(x))
    return _flat(x)


class SimpleCNN(nn.Module):
  """Two convolutions and two dense layers, of these widths.

  conv1  5x5 to  6 channels, no padding, 2x2 max-pool
  conv2  5x5 to 16 channels, no padding, 2x2 max-pool
  fc1    120
  fc2    84: the features

  62,006 parameters on 32x32x3 images of 10 classes, 44,426 on 28x28x1. The
  encoder of the public code has one more layer, which is never used; it is left
  out.
  """

  num_classes: int
  widths: tuple[int, int, int, int] = (6, 16, 120, 84)

  def setup(self):
    def conv(width: int) -> nn.Module:
      return layers.Conv(width, (5, 5), padding=0, use_bias=True)

    self.conv1, self.conv2 = map(conv, self.widths[:2])
    self.fc1, self.fc2 = map(layers.Dense, self.widths[2:])
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    x = layers.max_pool(nn.relu(self.conv1(x)))
    x = layers.max_pool(nn.relu(self.conv2(x)))
    return nn.relu(self.fc2(nn.relu(self.fc1(_flat(x)))))


class SuperFedCNN(nn.Module):
  """Three convolutions without padding, and a dense layer.

               28x28 (EMNIST)    32x32 (CIFAR)     64x64 (Tiny-ImageNet)
    conv1      5x5 to 32, 24x24  5x5, 28x28        5x5, 60x60
    pool       2, 12x12          2, 14x14          3, 20x20
    conv2      5x5 to 64, 8x8    5x5, 10x10        5x5, 16x16
    pool       2, 4x4            2, 5x5            3, 5x5
    conv3      2x2 to 32, 3x3    3x3, 3x3          2x2, 4x4
    pool       2, 1x1            2, 1x1            3, 1x1
    fc1        512: the features
    parameters 109,022           94,186 / 140,356  181,416 (62, 10 / 100, 200)

  Pooling with stride = size. Kernels are initialised as N(0, 2 / (fan_in +
  fan_out)), biases at 0. fc1 and head are 1x1 convolutions in the paper, of a
  map of one pixel: the same.
  """

  num_classes: int
  side: int = 32

  def setup(self):
    inits = layers.glorot_normal
    kernels = {'conv1': (32, 5), 'conv2': (64, 5)}
    kernels['conv3'] = 32, SUPERFED_SIDES[self.side][1]
    for name, (width, size) in kernels.items():
      how = {'padding': 0, 'use_bias': True, 'inits': inits}
      setattr(self, name, layers.Conv(width, (size, size), **how))
    self.fc1 = layers.Dense(512, inits)
    self.head = layers.Dense(self.num_classes, inits)

  def features(self, x: Array, mask: Array) -> Array:
    for conv in (self.conv1, self.conv2, self.conv3):
      x = layers.max_pool(nn.relu(conv(x)), SUPERFED_SIDES[self.side][0])
    return nn.relu(self.fc1(_flat(x)))


# Image side: (side of all poolings, side of conv3's kernel).
SUPERFED_SIDES = {28: (2, 2), 32: (2, 3), 64: (3, 2)}


class VGG9(nn.Module):
  """Six convolutions, three dense layers, no norm.

  conv1, conv2  3x3 to 32, 64,   2x2 max-pool
  conv3, conv4  3x3 to 128, 128, 2x2 max-pool, dropout of whole channels, 0.05
  conv5, conv6  3x3 to 256, 256, 2x2 max-pool
  fc1, fc2      512, 512; dropout 0.1 before the first and after the second,
                which are the features

  3,491,530 parameters on 32x32x3 images of 10 classes.
  """

  num_classes: int

  def setup(self):
    for i, width in enumerate((32, 64, 128, 128, 256, 256), 1):
      setattr(self, f'conv{i}', layers.Conv(width, use_bias=True))
    self.drop_channels = nn.Dropout(0.05, broadcast_dims=(1, 2))
    self.drop = nn.Dropout(0.1)
    self.fc1, self.fc2 = layers.Dense(512), layers.Dense(512)
    self.head = layers.Dense(self.num_classes)

  def features(self, x: Array, mask: Array, train: bool = False) -> Array:
    x = nn.relu(self.conv2(nn.relu(self.conv1(x))))
    x = nn.relu(self.conv4(nn.relu(self.conv3(layers.max_pool(x)))))
    x = layers.max_pool(x)
    x = self.drop_channels(x, deterministic=not train)
    x = nn.relu(self.conv6(nn.relu(self.conv5(x))))
    x = layers.max_pool(x)
    x = self.drop(_flat(x), deterministic=not train)
    x = nn.relu(self.fc2(nn.relu(self.fc1(x))))
    return self.drop(x, deterministic=not train)


def _flat(x: Array) -> Array:
  return x.reshape(x.shape[0], -1)
