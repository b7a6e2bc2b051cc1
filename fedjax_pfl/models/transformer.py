"""Transformers of characters and of small images, and their block.

  x <- x + W_o Attention(LayerNorm(x))
  x <- x + W_2 gelu(W_1 LayerNorm(x))

W_1 has 4 F columns. Attention is that of heads of d = F / H numbers,

  softmax(q k^T / sqrt(d)) v,    (q, k, v) = W_qkv x, one product

In a causal block a position sees itself and those before it, and q and k are
turned by angles that grow with the position (rotary positions, Su et al. 2021):
their product depends on how far apart they are. There is no dropout.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import initializers

from fedjax_pfl.core import types
from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers

# Rows of these: the sums that follow are those of a whole block.
DIVIDED = {'*/out/kernel': -2, '*/fc2/kernel': -2, **types.DIVIDED}


class Block(nn.Module):
  """Return x [B, L, F] after attention and a perceptron.

  Dense layers read rows [B L, F], whose gradients need no transposed copies.
  """

  heads: int
  is_causal: bool = False
  is_exact: bool = False  # gelu by erf; by tanh otherwise

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape, width = x.shape, x.shape[-1]
    x = x.reshape(-1, width)
    y = layers.Dense(3 * width, name='qkv')(nn.LayerNorm(name='norm1')(x))
    y = attention(y.reshape(*shape[:2], -1), self.heads, self.is_causal)
    x = x + layers.Dense(width, name='out')(y.reshape(-1, width))
    y = layers.Dense(4 * width, name='fc1')(nn.LayerNorm(name='norm2')(x))
    x = x + layers.Dense(width, name='fc2')(nn.gelu(y, not self.is_exact))
    return x.reshape(shape)


class CharTransformer(layers.Network):
  """Predicts the next of Y characters: 4 causal blocks of 128, 4 heads.

  Tokens [B, L] below Y become features [B, L, F]. 810,049 parameters for 65
  characters. F, the blocks and the heads are nanoGPT's for a CPU.
  """

  width: int = 128
  blocks: int = 4
  heads: int = 4
  divided = DIVIDED

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    x = nn.Embed(self.num_classes, self.width, name='embed')(x)
    for i in range(self.blocks):
      x = Block(self.heads, is_causal=True, name=f'block{i}')(x)
    return nn.LayerNorm(name='norm')(x)


def attention(qkv: Array, heads: int, is_causal: bool) -> Array:
  """Return what every position [B, L, F] takes from those that it sees.

  qkv: [B, L, 3 F], the queries, keys and values of all heads.
  """
  batch, length, width = qkv.shape
  size = width // 3 // heads
  # [3, B, H, L, d]: products of heads that lie one after another.
  q, k, v = qkv.reshape(batch, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
  if is_causal:
    q, k = rotated(q), rotated(k)
  scores = jnp.einsum('bhqd,bhkd->bhqk', q / math.sqrt(size), k)
  if is_causal:
    scores = jnp.where(np.tri(length, dtype=bool), scores, -jnp.inf)
  y = jnp.einsum('bhqk,bhkd->bhqd', jax.nn.softmax(scores), v)
  return y.transpose(0, 2, 1, 3).reshape(batch, length, width // 3)


def rotated(x: Array) -> Array:
  """Return x [.., L, d] with the pairs (j, j + d/2) of position l turned.

  By the angle l / 10000^(2 j / d).
  """
  length, size = x.shape[-2:]
  speed = 1e4 ** (-np.arange(0, size, 2) / size)
  angle = np.outer(np.arange(length), speed)  # [L, d / 2]
  cos, sin = (jnp.asarray(fn(angle), x.dtype) for fn in (np.cos, np.sin))
  a, b = jnp.split(x, 2, axis=-1)
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class ViT(layers.Network):
  """Patches of 4x4 pixels, learned positions, 6 blocks of 192, 3 heads.

  A vision transformer (Dosovitskiy et al. 2021) for small images, without
  dropout. The features are the mean over patches after a last LayerNorm.
  2,693,194 parameters on 32x32x3 images of 10 classes, which are 64 patches.
  With `class_token` it is that of the paper and of public checkpoints: a
  learned token before the patches has the features; exact gelu.
  """

  patch: int = 4
  width: int = 192
  blocks: int = 6
  heads: int = 3
  class_token: bool = False
  divided = DIVIDED

  @nn.compact
  def features(self, x: Array, mask: Array) -> Array:
    size = (self.patch, self.patch)
    x = layers.Conv(
      self.width, size, self.patch, padding=0, use_bias=True, name='patches'
    )(x)
    x = x.reshape(len(x), -1, self.width)  # [B, patches, F]
    init = initializers.normal(0.02, dtype=float)
    if self.class_token:
      token = self.param('class_token', init, (1, self.width))
      token = jnp.broadcast_to(token, (len(x), *token.shape))
      x = jnp.concatenate([token.astype(x.dtype), x], axis=1)
    x = x + self.param('positions', init, x.shape[1:])
    for i in range(self.blocks):
      block = Block(self.heads, is_exact=self.class_token, name=f'block{i}')
      x = block(x)
    if self.class_token:
      return nn.LayerNorm(name='norm')(x[:, 0])
    return nn.LayerNorm(name='norm')(x).mean(axis=1)


_patches16 = functools.partial(ViT, patch=16, blocks=12, class_token=True)
vit_ti16 = functools.partial(_patches16, width=192, heads=3)
vit_b16 = functools.partial(_patches16, width=768, heads=12)
