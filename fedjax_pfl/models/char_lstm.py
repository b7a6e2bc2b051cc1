"""The model of characters of LEAF and SuPerFed: two layers of LSTM.

  z_t        = x_t W + h_{t-1} U,   [i, f, g, o] = z_t in four equal parts
  c_t        = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
  h_t        = sigmoid(o) tanh(c_t)

x of the first layer are embeddings of the characters, of the second h of the
first; h and c begin as 0, no layer has a bias but the head. The features of a
character are h_t of the last layer: they depend on what stands before it.

Products with W are one product for all t, and so are the gradients of W and U:
a step of the loop has the product with U alone.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models import layers

VOCABULARY = 100  # the symbols of data/preparation/texts.py


class CharLSTM(layers.Network):
  """SuPerFed's and LEAF's: embeddings of 8 numbers, two layers of 256.

  821,124 parameters for 100 classes; SuPerFed's head has no bias. Embeddings
  begin as N(0, 1), W and U as U(-1/16, 1/16), the head as N(0, 2 /
  (fan_in + fan_out)), and its bias as 0.

  Differs from LEAF's: TensorFlow's cell has biases, of which f's begins as 1.
  """

  width: int = 256
  embedding: int = 8
  num_layers: int = 2

  def setup(self):
    symbols = max(VOCABULARY, self.num_classes)
    normal = nn.initializers.normal(1.0, float)
    self.embed = nn.Embed(symbols, self.embedding, embedding_init=normal)
    self.lstm = LSTM(self.width, self.num_layers)
    self.head = layers.Dense(self.num_classes, layers.glorot_normal)

  def features(self, x: Array, mask: Array) -> Array:
    """Return h_t of the last layer, [B, L, F], of characters [B, L]."""
    del mask
    return self.lstm(self.embed(x.T)).swapaxes(0, 1)  # time comes first inside


class LSTM(nn.Module):
  """Layers of LSTM on inputs [L, B, F]; for SuPerFed they are one module."""

  width: int
  num_layers: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = layers.uniform(self.width)
    for i in range(1, self.num_layers + 1):
      shapes = (x.shape[-1], 4 * self.width), (self.width, 4 * self.width)
      w, u = (
        self.param(f'{name}{i}_kernel', init, shape)
        for name, shape in zip('wu', shapes, strict=True)
      )
      x = recur(x @ w, u)
    return x


@jax.custom_vjp
def recur(drive: Array, kernel: Array) -> Array:
  """Return h_t [L, B, F] of x_t W [L, B, 4 F] and U [F, 4 F]."""
  return _forward(drive, kernel)[0]


def _forward(drive: Array, kernel: Array) -> tuple[Array, tuple]:
  """Return h_t, and what the gradients read."""

  def step(state, drive):
    h, c = state
    i, f, g, o = jnp.split(drive + h @ kernel, 4, axis=-1)
    i, f, o = map(jax.nn.sigmoid, (i, f, o))
    g = jnp.tanh(g)
    c = f * c + i * g
    h = o * jnp.tanh(c)
    return (h, c), (h, c, (i, f, g, o))

  zeros = jnp.zeros_like(drive[0, :, : kernel.shape[0]])
  _, (h, c, gates) = lax.scan(step, (zeros, zeros), drive)
  return h, (kernel, h, c, gates)


def _backward(saved: tuple, dh: Array) -> tuple[Array, Array]:
  """Return the gradients by `drive`, dz_t, and by U: sum_t h_{t-1}' dz_t."""
  kernel, h, c, gates = saved

  def before(rows):  # those of the step before: 0 at first
    return jnp.concatenate([jnp.zeros_like(rows[:1]), rows[:-1]])

  def step(later, now):
    (dh, dc), (dh_now, c, c_before, (i, f, g, o)) = later, now
    dh, tanh_c = dh + dh_now, jnp.tanh(c)
    dc = dc + dh * o * (1 - tanh_c**2)
    parts = (
      dc * g * i * (1 - i),
      dc * c_before * f * (1 - f),
      dc * i * (1 - g**2),
      dh * tanh_c * o * (1 - o),
    )
    dz = jnp.concatenate(parts, axis=-1)
    return (dz @ kernel.T, dc * f), dz

  zeros = jnp.zeros_like(dh[0])
  rows = dh, c, before(c), gates
  _, dz = lax.scan(step, (zeros, zeros), rows, reverse=True)
  return dz, jnp.einsum('lbf,lbg->fg', before(h), dz)


recur.defvjp(_forward, _backward)
