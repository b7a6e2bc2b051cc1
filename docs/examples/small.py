"""Three small models beside `convnet3`: docs/howto/architectures.md."""

import flax.linen as nn


class Dense(nn.Module):
  num_classes: int

  def setup(self):
    self.layers = nn.Dense(128), nn.Dense(128)
    self.head = nn.Dense(self.num_classes)

  def features(self, x, mask):
    x = x.reshape(len(x), -1)
    for layer in self.layers:
      x = nn.relu(layer(x))
    return x


class OneConv(nn.Module):
  num_classes: int

  def setup(self):
    self.conv = nn.Conv(32, (3, 3))
    self.head = nn.Dense(self.num_classes)

  def features(self, x, mask):
    x = nn.max_pool(nn.relu(self.conv(x)), (2, 2), (2, 2))
    return x.reshape(len(x), -1)


class Rows(nn.Module):  # attention between the rows of an image
  num_classes: int

  def setup(self):
    self.embed, self.up = nn.Dense(64), nn.Dense(64)
    self.attend = nn.SelfAttention(num_heads=4)
    self.place = self.param('place', nn.initializers.normal(0.02), (8, 64))
    self.head = nn.Dense(self.num_classes)

  def features(self, x, mask):
    x = self.embed(x.reshape(*x.shape[:2], -1)) + self.place
    x = x + self.attend(x)
    return nn.relu(self.up(x)).reshape(len(x), -1)
