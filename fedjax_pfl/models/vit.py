"""A vision transformer (Dosovitskiy et al. 2021) for small images."""

import flax.linen as nn
from jax.nn import initializers

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import layers
from fedjax_pfl.models.transformer import Block


class ViT(layers.Network):
  """Patches of 4x4 pixels, learned positions, 6 blocks of 192, 3 heads.

  The features are the mean over patches after a last LayerNorm; there is no
  class token and no dropout. 2,693,194 parameters on 32x32x3 images of 10
  classes, which are 64 patches.
  """

  patch: int = 4
  width: int = 192
  blocks: int = 6
  heads: int = 3

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    size = (self.patch, self.patch)
    how = {'stride': self.patch, 'padding': 0, 'use_bias': True}
    x = layers.Conv(self.width, size, **how, name='patches')(x)
    x = x.reshape(len(x), -1, self.width)  # [B, patches, F]
    init = initializers.normal(0.02, dtype=float)
    x = x + self.param('positions', init, x.shape[1:])
    for i in range(self.blocks):
      x = Block(self.heads, name=f'block{i}')(x)
    return nn.LayerNorm(name='norm')(x).mean(axis=1)
