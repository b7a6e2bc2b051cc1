"""Networks of convolutions, max-pooling and dense layers, one for each paper.

ReLU after all layers but the head. A dense layer reads the flattened (H, W, C)
map.
"""

import functools

import flax.linen as nn

from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers


class ConvNet(layers.Network):
  """FedBABU's: blocks of conv 3x3 of 64 channels with bias, BatchNorm, pooling.

  depth 3 on 28x28x1 (EMNIST):   576 features
  depth 4 on 32x32x3 (CIFAR):    256 features
  """

  depth: int

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    for i in range(1, self.depth + 1):
      x = layers.Conv(64, use_bias=True, name=f'conv{i}')(x)
      x = layers.BatchNorm(name=f'bn{i}')(x, mask)
      x = layers.max_pool(nn.relu(x))
    return _flat(x)


convnet3 = functools.partial(ConvNet, depth=3)
convnet4 = functools.partial(ConvNet, depth=4)


class SimpleCNN(layers.Network):
  """FedConcat's, section 4, of its code's base, NIID-Bench.

  conv1  5x5 to  6 channels, no padding, 2x2 max-pool
  conv2  5x5 to 16 channels, no padding, 2x2 max-pool
  fc1    120
  fc2    84: the features

  62,006 parameters on 32x32x3 images of 10 classes, 44,426 on 28x28x1. The
  encoder of the public code has one more layer, which is never used; it is left
  out.
  """

  widths: tuple[int, ...] = (6, 16, 120, 84)

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    conv = functools.partial(layers.Conv, padding=0, use_bias=True)
    for i, width in enumerate(self.widths[:2], 1):
      x = layers.max_pool(nn.relu(conv(width, (5, 5), name=f'conv{i}')(x)))
    x = _flat(x)
    for i, width in enumerate(self.widths[2:], 1):
      x = nn.relu(layers.Dense(width, name=f'fc{i}')(x))
    return x


# Of PFLlib, and of the papers that compare by it: conv1 to 32, conv2 to 64
# channels, fc1 512. 582,026 parameters on 28x28x1 images of 10 classes, 878,538
# on 32x32x3.
fedavg_cnn = functools.partial(SimpleCNN, widths=(32, 64, 512))


# Image side: (side of all poolings, side of conv3's kernel).
SUPERFED_SIDES = {28: (2, 2), 32: (2, 3), 64: (3, 2)}


class SuperFedCNN(layers.Network):
  """SuPerFed's first version: three convolutions without padding, and a dense.

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

  side: int = 32

  def setup(self):
    self.head = layers.Dense(self.num_classes, layers.glorot_normal)

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    pooled, last = SUPERFED_SIDES[self.side]
    conv = functools.partial(
      layers.Conv, padding=0, use_bias=True, inits=layers.glorot_normal
    )
    for i, (width, size) in enumerate(((32, 5), (64, 5), (32, last)), 1):
      x = conv(width, (size, size), name=f'conv{i}')(x)
      x = layers.max_pool(nn.relu(x), pooled)
    dense = layers.Dense(512, layers.glorot_normal, name='fc1')
    return nn.relu(dense(_flat(x)))


class VGG9(layers.Network):
  """Of FedConcat's scripts: six convolutions, three dense layers, no norm.

  conv1, conv2  3x3 to 32, 64,   2x2 max-pool
  conv3, conv4  3x3 to 128, 128, 2x2 max-pool, dropout of whole channels, 0.05
  conv5, conv6  3x3 to 256, 256, 2x2 max-pool
  fc1, fc2      512, 512; dropout 0.1 before the first and after the second,
                which are the features

  3,491,530 parameters on 32x32x3 images of 10 classes.
  """

  @nn.compact
  def features(self, x: Array, mask: Array, train: bool = False) -> Array:
    drop = nn.Dropout(0.1, name='drop')
    drop_channels = nn.Dropout(0.05, (1, 2), name='drop_channels')
    for i, width in enumerate((32, 64, 128, 128, 256, 256), 1):
      x = nn.relu(layers.Conv(width, use_bias=True, name=f'conv{i}')(x))
      x = layers.max_pool(x) if i % 2 == 0 else x
      x = drop_channels(x, deterministic=not train) if i == 4 else x
    x = drop(_flat(x), deterministic=not train)
    for i in (1, 2):
      x = nn.relu(layers.Dense(512, name=f'fc{i}')(x))
    return drop(x, deterministic=not train)


def _flat(x: Array) -> Array:
  return x.reshape(x.shape[0], -1)
