"""A small network with BatchNorm that has running statistics."""

import flax.linen as nn
import jax.numpy as jnp

from fedjax_pfl.models import layers
from fedjax_pfl.models.module_task import task_from_module


class Net(layers.Network):
  """conv, norm, ReLU, pooling; and, if deep, what MobileNet and ResNet have."""

  width: int = 2
  deep: bool = False

  @nn.compact
  def features(self, x, mask):
    def norm(x, name):
      return layers.BatchNorm(name=name)(x, mask)

    x = layers.Conv(self.width, use_bias=True, name='conv')(x)
    x = layers.max_pool(nn.relu(norm(x, 'bn')))
    if self.deep:
      y = nn.relu(norm(layers.Pointwise(self.width, name='in')(x), 'bn1'))
      y = nn.relu(norm(layers.DepthwiseConv(name='middle')(y), 'bn2'))
      y = norm(layers.Pointwise(self.width, name='out')(y), 'bn3')
      x = nn.relu(y + norm(x, 'bn4'))
    return x.reshape(len(x), -1)


def norm_task(shape=(4, 4, 1), classes=2, deep=False, **how):
  """Return its task; images are not augmented."""
  return task_from_module(
    Net(classes, deep=deep, width=4 if deep else 2),
    image_shape=shape,
    num_classes=classes,
    **{'running_statistics': True, 'augment': as_float, **how},
  )


def as_float(x, key):
  return x.astype(jnp.result_type(float)) / (255 if x.dtype == 'uint8' else 1)
