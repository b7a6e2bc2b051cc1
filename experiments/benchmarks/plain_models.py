"""Models as a user writes them: plain flax modules, through task_from_module.

Nothing of the project's own layers is in them. Both are of other frameworks,
with the settings of their own benchmarks on CIFAR-10: no crop, no flip, SGD
without momentum.
"""

import flax.linen as nn

from fedjax_pfl.core.types import Array


class FedAvgCNN(nn.Module):
  """PFLlib's FedAvgCNN: 878,538 parameters on 32x32x3 images of 10 classes."""

  num_classes: int

  def setup(self):
    self.conv1 = nn.Conv(32, (5, 5), padding='VALID')
    self.conv2 = nn.Conv(64, (5, 5), padding='VALID')
    self.fc1, self.head = nn.Dense(512), nn.Dense(self.num_classes)

  def features(self, x: Array, mask: Array) -> Array:
    del mask
    for conv in (self.conv1, self.conv2):
      x = nn.max_pool(nn.relu(conv(x)), (2, 2), strides=(2, 2))
    return nn.relu(self.fc1(x.reshape(x.shape[0], -1)))

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))


class PflCNN(nn.Module):
  """The CNN of pfl-research's public CIFAR-10 benchmark: 1,626,442 parameters.

  The benchmark: 1,000 IID clients of 50 images, cohorts of 50, one epoch with
  batches of 10.
  """

  num_classes: int

  def setup(self):
    self.conv1 = nn.Conv(32, (3, 3), padding='VALID')
    self.conv2 = nn.Conv(64, (3, 3), padding='VALID')
    self.drop1, self.drop2 = nn.Dropout(0.25), nn.Dropout(0.5)
    self.fc1, self.head = nn.Dense(128), nn.Dense(self.num_classes)

  def features(self, x: Array, mask: Array, train: bool = False) -> Array:
    del mask
    x = nn.relu(self.conv2(nn.relu(self.conv1(x))))
    x = nn.max_pool(x, (2, 2), strides=(2, 2))
    x = self.drop1(x, deterministic=not train)
    x = nn.relu(self.fc1(x.reshape(x.shape[0], -1)))
    return self.drop2(x, deterministic=not train)

  def __call__(self, x: Array, mask: Array) -> Array:
    return self.head(self.features(x, mask))


PLAIN = {'fedavg_cnn': FedAvgCNN, 'pfl_cnn': PflCNN}
